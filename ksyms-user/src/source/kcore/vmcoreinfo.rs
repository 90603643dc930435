//! What the kernel tells those who read its memory.

/// The note VMCOREINFO: lines of `KEY=VALUE`, such as `SYMBOL(_stext)=HEX`
/// (`kernel/vmcore_info.c`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmcoreInfo {
    text: String,
}

impl VmcoreInfo {
    /// Takes the text of the note, whatever it is: what is no line of that form
    /// is never found, and bytes that are not UTF-8 become U+FFFD.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        Self {
            text: String::from_utf8_lossy(text).into_owned(),
        }
    }

    /// The value of `key`, as `OSRELEASE`; of several the first.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    }

    /// The value of `kind(name)`.
    fn named(&self, kind: &str, name: &str) -> Option<&str> {
        self.text.lines().find_map(|line| {
            line.strip_prefix(kind)?
                .strip_prefix('(')?
                .strip_prefix(name)?
                .strip_prefix(")=")
        })
    }

    /// The address of a symbol, `SYMBOL(name)`.
    #[must_use]
    pub fn symbol(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.named("SYMBOL", name)?, 16).ok()
    }

    /// The bytes of a structure, `SIZE(name)`.
    #[must_use]
    pub fn size(&self, name: &str) -> Option<u64> {
        self.named("SIZE", name)?.parse().ok()
    }

    /// Where in its structure a member is, in bytes: `OFFSET(struct.member)`.
    #[must_use]
    pub fn offset(&self, member: &str) -> Option<u64> {
        self.named("OFFSET", member)?.parse().ok()
    }

    /// How many elements an array has, `LENGTH(name)`.
    #[must_use]
    pub fn length(&self, name: &str) -> Option<u64> {
        self.named("LENGTH", name)?.parse().ok()
    }

    /// A number, `NUMBER(name)`; some are hexadecimal, with `0x`.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<i64> {
        let number = self.named("NUMBER", name)?;
        match number.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(u64::cast_signed),
            None => number.parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line() {
        let info = VmcoreInfo::parse(
            b"OSRELEASE=6.12.1\nPAGESIZE=4096\nSYMBOL(_stext)=ffffffff81000000\n\
              SIZE(list_head)=16\nOFFSET(page.flags)=8\nLENGTH(zone.free_area)=11\n\
              NUMBER(phys_base)=-16777216\nNUMBER(KERNEL_IMAGE_SIZE)=0x40000000\nSYMBOL(_stext)=1\n",
        );
        assert_eq!(info.get("OSRELEASE"), Some("6.12.1"));
        assert_eq!(info.symbol("_stext"), Some(0xffff_ffff_8100_0000));
        assert_eq!(info.size("list_head"), Some(16));
        assert_eq!(info.offset("page.flags"), Some(8));
        assert_eq!(info.length("zone.free_area"), Some(11));
        assert_eq!(info.number("phys_base"), Some(-16_777_216));
        assert_eq!(info.number("KERNEL_IMAGE_SIZE"), Some(0x4000_0000));
        for missing in ["_stex", "_stext)", "list_head", ""] {
            assert_eq!(info.symbol(missing), None, "{missing}");
        }
    }

    #[test]
    fn any_bytes_are_survived() {
        for text in [
            &b""[..],
            b"SYMBOL(_stext)",
            b"SYMBOL(_stext)=",
            b"SYMBOL(_stext)=xyz\n",
            b"SYMBOL(_stext)=11112222333344445\n",
            b"SYMBOL(\xff\xfe)=1\n\0\0=\n=\nSYMBOL(_stext\n",
        ] {
            assert_eq!(VmcoreInfo::parse(text).symbol("_stext"), None);
        }
        let info = VmcoreInfo::parse(b"\xff\nSYMBOL(_stext)=10\r\nSYMBOL(a)=20");
        assert_eq!(info.symbol("_stext"), Some(16));
        assert_eq!(info.symbol("a"), Some(32));
    }
}
