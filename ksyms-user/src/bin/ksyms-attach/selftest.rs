//! `selftest`.

use ksyms::report::{Format, grouped};

use crate::{
    args::Selftest,
    failure::Failure,
    output,
    table::{Loaded, load_table},
};

pub(crate) fn selftest(args: &Selftest) -> Result<(), Failure> {
    let Loaded {
        table,
        origin,
        symbols,
        ..
    } = load_table(&args.symbols)?;
    let selftest = ksyms::selftest::selftest(&table, &origin, symbols.as_ref(), args.iters);
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
