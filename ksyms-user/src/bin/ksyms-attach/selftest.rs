//! `selftest`.

use ksyms::{
    report::{Format, grouped},
    source::SymbolSource,
};

use crate::{args::Selftest, failure::Failure, output, table::Loaded, terminal::Talk};

pub(crate) fn selftest(args: &Selftest, symbols: &SymbolSource, talk: Talk) -> Result<(), Failure> {
    let loaded = Loaded::read(symbols, talk)?;
    let origin = loaded.origin();
    let selftest = ksyms::selftest::selftest(loaded.table(), &origin, loaded.symbols(), args.iters);
    output(|mut out| selftest.write(Format::from(args.format), &mut out))?;
    if selftest.passed() {
        Ok(())
    } else {
        Err(Failure::Running(format!(
            "{} answers about symbols are wrong; report this, with the table it was ({origin})",
            grouped(selftest.wrong())
        )))
    }
}
