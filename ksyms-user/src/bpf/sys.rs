//! Safe functions around the system calls that rustix does not have.
#![expect(unsafe_code, reason = "raw system calls live here")]

use std::{
    ffi::{CStr, c_long, c_ulong},
    io, mem,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
    ptr::{self, NonNull},
    sync::atomic::AtomicU64,
};

use aya_obj::generated::{
    BPF_ANY, PERF_EVENT_IOC_ENABLE, PERF_EVENT_IOC_SET_BPF, PERF_FLAG_FD_CLOEXEC, bpf_attach_type,
    bpf_attr, bpf_cmd, bpf_insn, bpf_link_info, bpf_prog_info, bpf_prog_type, perf_event_attr,
    perf_type_id,
};
use thiserror::Error;

/// A system call that failed.
#[derive(Debug, Error)]
#[error("{call} failed: {error}")]
pub struct SyscallError {
    /// The call: `bpf(BPF_LINK_CREATE)`, `perf_event_open`, ….
    pub call: &'static str,
    /// What the kernel answered.
    #[source]
    pub error: io::Error,
}

impl SyscallError {
    pub(crate) fn last(call: &'static str) -> Self {
        Self {
            call,
            error: io::Error::last_os_error(),
        }
    }

    /// The errno, or 0 when the error did not come from the kernel.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.error.raw_os_error().unwrap_or(0)
    }
}

const BPF_TRACE_KPROBE_MULTI: u32 = bpf_attach_type::BPF_TRACE_KPROBE_MULTI as u32;
const BPF_PERF_EVENT: u32 = bpf_attach_type::BPF_PERF_EVENT as u32;

fn zeroed_attr() -> bpf_attr {
    // SAFETY: bpf_attr is a union of plain integers, all of which may be zero.
    unsafe { mem::zeroed() }
}

fn bpf(command: bpf_cmd, call: &'static str, attr: &mut bpf_attr) -> Result<c_long, SyscallError> {
    // SAFETY: the attribute is valid for its whole size; what its pointers show
    // to is the caller's duty, and every caller is in this file and borrows it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as c_long,
            ptr::from_mut(attr),
            size_of::<bpf_attr>(),
        )
    };
    if result < 0 {
        Err(SyscallError::last(call))
    } else {
        Ok(result)
    }
}

/// Takes a file descriptor that a system call has just returned.
fn owned(fd: c_long) -> OwnedFd {
    let fd = RawFd::try_from(fd).expect("the kernel returns file descriptors as int");
    // SAFETY: the kernel has just made it for us and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

fn address_of<T>(data: &[T]) -> u64 {
    data.as_ptr() as u64
}

/// What a program is loaded as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramKind {
    /// For a perf event of a kprobe.
    Kprobe,
    /// For a kprobe.multi link, which insists on the expected attach type
    /// (kernel commit db8eae6bc5c7, 6.6).
    KprobeMulti,
}

/// Loads a program. The verifier's words go to `log` when it is not empty.
pub(crate) fn program_load(
    kind: ProgramKind,
    name: &str,
    license: &CStr,
    instructions: &[bpf_insn],
    log: &mut [u8],
) -> Result<OwnedFd, SyscallError> {
    let mut attr = zeroed_attr();
    attr.__bindgen_anon_3.prog_type = bpf_prog_type::BPF_PROG_TYPE_KPROBE as u32;
    attr.__bindgen_anon_3.expected_attach_type = match kind {
        ProgramKind::Kprobe => 0,
        ProgramKind::KprobeMulti => BPF_TRACE_KPROBE_MULTI,
    };
    attr.__bindgen_anon_3.insns = address_of(instructions);
    attr.__bindgen_anon_3.insn_cnt = u32::try_from(instructions.len()).expect("programs are small");
    attr.__bindgen_anon_3.license = license.as_ptr() as u64;
    // The kernel takes 15 bytes and the NUL.
    let mut prog_name = [0; 16];
    for (to, from) in prog_name[..15].iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    attr.__bindgen_anon_3.prog_name = prog_name;
    if !log.is_empty() {
        attr.__bindgen_anon_3.log_level = 1;
        attr.__bindgen_anon_3.log_buf = log.as_mut_ptr() as u64;
        attr.__bindgen_anon_3.log_size = u32::try_from(log.len()).expect("logs are below 4 GiB");
    }
    bpf(bpf_cmd::BPF_PROG_LOAD, "bpf(BPF_PROG_LOAD)", &mut attr).map(owned)
}

/// Arms `program` at all `addresses` with one kprobe.multi link. Kernel 5.18
/// with `CONFIG_FPROBE`; EOPNOTSUPP without.
pub(crate) fn link_create_kprobe_multi(
    program: BorrowedFd<'_>,
    addresses: &[u64],
    cookies: Option<&[u64]>,
) -> Result<OwnedFd, SyscallError> {
    if let Some(cookies) = cookies {
        assert_eq!(addresses.len(), cookies.len(), "a cookie for each address");
    }
    let mut attr = zeroed_attr();
    attr.link_create.__bindgen_anon_1.prog_fd = raw(program);
    attr.link_create.attach_type = BPF_TRACE_KPROBE_MULTI;
    let count = u32::try_from(addresses.len()).expect("the kernel takes at most 1 << 20 addresses");
    attr.link_create.__bindgen_anon_3.kprobe_multi.cnt = count;
    attr.link_create.__bindgen_anon_3.kprobe_multi.addrs = address_of(addresses);
    attr.link_create.__bindgen_anon_3.kprobe_multi.cookies = cookies.map_or(0, address_of);
    bpf(bpf_cmd::BPF_LINK_CREATE, LINK_CREATE, &mut attr).map(owned)
}

/// Whether this kernel has kprobe.multi links at all, found without making one:
/// a kernel that has them goes as far as reading the addresses, and these are
/// not readable.
pub(crate) fn knows_kprobe_multi(program: BorrowedFd<'_>) -> bool {
    let mut attr = zeroed_attr();
    attr.link_create.__bindgen_anon_1.prog_fd = raw(program);
    attr.link_create.attach_type = BPF_TRACE_KPROBE_MULTI;
    attr.link_create.__bindgen_anon_3.kprobe_multi.cnt = 1;
    attr.link_create.__bindgen_anon_3.kprobe_multi.addrs = u64::MAX;
    bpf(bpf_cmd::BPF_LINK_CREATE, LINK_CREATE, &mut attr)
        .is_err_and(|error| error.errno() == libc::EFAULT)
}

const LINK_CREATE: &str = "bpf(BPF_LINK_CREATE)";

/// Runs `program` on `event` with a cookie. Kernel 5.15; EINVAL before.
pub(crate) fn link_create_perf(
    program: BorrowedFd<'_>,
    event: BorrowedFd<'_>,
    cookie: u64,
) -> Result<OwnedFd, SyscallError> {
    let mut attr = zeroed_attr();
    attr.link_create.__bindgen_anon_1.prog_fd = raw(program);
    attr.link_create.__bindgen_anon_2.target_fd = raw(event);
    attr.link_create.attach_type = BPF_PERF_EVENT;
    attr.link_create.__bindgen_anon_3.perf_event.bpf_cookie = cookie;
    bpf(bpf_cmd::BPF_LINK_CREATE, LINK_CREATE, &mut attr).map(owned)
}

/// Runs `program` on `event` for as long as the event is open: the way of
/// kernels before 5.15, without cookies.
pub(crate) fn perf_event_set_program(
    event: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
) -> Result<(), SyscallError> {
    let ioctl = |request: u32, argument: c_ulong, call| {
        // SAFETY: both requests take an integer.
        if unsafe { libc::ioctl(event.as_raw_fd(), request.into(), argument) } < 0 {
            Err(SyscallError::last(call))
        } else {
            Ok(())
        }
    };
    ioctl(
        PERF_EVENT_IOC_SET_BPF,
        raw(program).into(),
        "ioctl(PERF_EVENT_IOC_SET_BPF)",
    )?;
    ioctl(PERF_EVENT_IOC_ENABLE, 0, "ioctl(PERF_EVENT_IOC_ENABLE)")
}

/// Opens the perf event of a kprobe at an absolute address; the probe is armed
/// by that. `pmu` is the number in
/// `/sys/bus/event_source/devices/kprobe/type`. Kernel 4.17.
pub(crate) fn perf_event_open_kprobe(pmu: u32, address: u64) -> Result<OwnedFd, SyscallError> {
    // SAFETY: perf_event_attr is made of plain integers.
    let mut attr: perf_event_attr = unsafe { mem::zeroed() };
    attr.size = u32::try_from(size_of::<perf_event_attr>()).expect("a small struct");
    attr.type_ = pmu;
    // Without a name the kernel takes the address (perf_kprobe_init,
    // kernel/trace/trace_event_perf.c), which no duplicate name can confuse.
    attr.__bindgen_anon_3.kprobe_func = 0;
    attr.__bindgen_anon_4.kprobe_addr = address;
    perf_event_open(&attr)
}

/// Opens the perf event of a trace event, which arms its probes. `id` is the
/// number in its directory in tracefs.
pub(crate) fn perf_event_open_tracepoint(id: u64) -> Result<OwnedFd, SyscallError> {
    // SAFETY: perf_event_attr is made of plain integers.
    let mut attr: perf_event_attr = unsafe { mem::zeroed() };
    attr.size = u32::try_from(size_of::<perf_event_attr>()).expect("a small struct");
    attr.type_ = perf_type_id::PERF_TYPE_TRACEPOINT as u32;
    attr.config = id;
    perf_event_open(&attr)
}

fn perf_event_open(attr: &perf_event_attr) -> Result<OwnedFd, SyscallError> {
    // A program on the event sees the hits of all CPUs, whichever it is opened on.
    let (pid, cpu, group) = (-1, 0, -1);
    // SAFETY: the attribute is valid and outlives the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            ptr::from_ref(attr),
            pid,
            cpu,
            group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        Err(SyscallError::last("perf_event_open"))
    } else {
        Ok(owned(fd))
    }
}

fn object_info<T>(fd: BorrowedFd<'_>, info: &mut T) -> Result<usize, SyscallError> {
    let mut attr = zeroed_attr();
    attr.info.bpf_fd = raw(fd);
    attr.info.info = ptr::from_mut(info) as u64;
    attr.info.info_len = u32::try_from(size_of::<T>()).expect("a small struct");
    bpf(
        bpf_cmd::BPF_OBJ_GET_INFO_BY_FD,
        "bpf(BPF_OBJ_GET_INFO_BY_FD)",
        &mut attr,
    )?;
    // SAFETY: the kernel has written how much of it it knows.
    Ok(unsafe { attr.info.info_len } as usize)
}

/// What the kernel says of a loaded program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramInfo {
    pub(crate) id: u32,
    /// Runs refused because a tracing program was already running on that CPU.
    /// Kernels before 6.7 do not count them for kprobes (`dd8657894c11`).
    pub(crate) recursion_misses: u64,
}

pub(crate) fn program_info(program: BorrowedFd<'_>) -> Result<ProgramInfo, SyscallError> {
    // SAFETY: bpf_prog_info is made of plain integers.
    let mut info: bpf_prog_info = unsafe { mem::zeroed() };
    object_info(program, &mut info)?;
    Ok(ProgramInfo {
        id: info.id,
        recursion_misses: info.recursion_misses,
    })
}

/// Which form of link [`link_missed`] is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkKind {
    KprobeMulti,
    PerfKprobe,
}

/// Hits that the probe itself lost, before the program was asked; `None` when
/// the kernel does not tell (before 6.7, commits 7acf164b259d and 3acf8ace6823).
pub(crate) fn link_missed(
    link: BorrowedFd<'_>,
    kind: LinkKind,
) -> Result<Option<u64>, SyscallError> {
    // The same release gave bpf_link_info the perf kprobe's count, at its end;
    // a shorter one means an older kernel, which leaves the multi link's zero.
    const SIZE_WITH_MISSED: usize = 56;
    // SAFETY: bpf_link_info is made of plain integers.
    let mut info: bpf_link_info = unsafe { mem::zeroed() };
    if object_info(link, &mut info)? < SIZE_WITH_MISSED {
        return Ok(None);
    }
    Ok(Some(match kind {
        // SAFETY: all members of the union are plain integers.
        LinkKind::KprobeMulti => unsafe { info.__bindgen_anon_1.kprobe_multi.missed },
        LinkKind::PerfKprobe => {
            // SAFETY: all members of the union are plain integers.
            let event = unsafe { info.__bindgen_anon_1.perf_event };
            // SAFETY: likewise.
            unsafe { event.__bindgen_anon_1.kprobe.missed }
        }
    }))
}

/// Writes the one element of a data section's map.
pub(crate) fn map_write_data(map: BorrowedFd<'_>, data: &[u8]) -> Result<(), SyscallError> {
    let key = [0_u32];
    let mut attr = zeroed_attr();
    attr.__bindgen_anon_2.map_fd = raw(map);
    attr.__bindgen_anon_2.key = address_of(&key);
    attr.__bindgen_anon_2.__bindgen_anon_1.value = address_of(data);
    attr.__bindgen_anon_2.flags = BPF_ANY.into();
    bpf(
        bpf_cmd::BPF_MAP_UPDATE_ELEM,
        "bpf(BPF_MAP_UPDATE_ELEM)",
        &mut attr,
    )
    .map(drop)
}

/// Makes a map read-only for user space, so that the verifier takes its values
/// for constants. Kernel 5.2.
pub(crate) fn map_freeze(map: BorrowedFd<'_>) -> Result<(), SyscallError> {
    let mut attr = zeroed_attr();
    attr.__bindgen_anon_2.map_fd = raw(map);
    bpf(bpf_cmd::BPF_MAP_FREEZE, "bpf(BPF_MAP_FREEZE)", &mut attr).map(drop)
}

/// A read-only view of an array map of `u64`, shared with the kernel. Kernel 5.5
/// (`BPF_F_MMAPABLE`).
#[derive(Debug)]
pub(crate) struct MappedArray {
    start: NonNull<AtomicU64>,
    elements: usize,
}

impl MappedArray {
    pub(crate) fn new(map: BorrowedFd<'_>, elements: usize) -> Result<Self, SyscallError> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                elements * size_of::<u64>(),
                libc::PROT_READ,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(SyscallError::last("mmap"));
        }
        let start = NonNull::new(start.cast()).expect("mmap never returns 0 unasked");
        Ok(Self { start, elements })
    }

    pub(crate) fn as_slice(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, that long, and lives as long as
        // self; the programs write it concurrently, hence the atomics, of which
        // only loads are used (the mapping is read-only).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.elements) }
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no slice of it outlives self.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.elements * size_of::<u64>()) };
    }
}

// SAFETY: shared memory that is only read, through atomics.
unsafe impl Send for MappedArray {}
// SAFETY: likewise.
unsafe impl Sync for MappedArray {}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_failing_call_says_which_and_why() {
        let not_a_program = std::fs::File::open("/dev/null").unwrap();
        let error = link_create_kprobe_multi(not_a_program.as_fd(), &[1], None).unwrap_err();
        assert!(error.errno() != 0);
        assert!(
            error
                .to_string()
                .starts_with("bpf(BPF_LINK_CREATE) failed: ")
        );
    }
}
