//! What the kernel's memory says, against what its text files say.

use std::ops::ControlFlow;

use ksyms::{
    kallsyms::Symbol,
    source::{self, Kcore, SourceError},
};
use libtest_mimic::Trial;

use crate::harness::{Kernel, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![test("every_kernel::kcore_core_symbols", core_symbols)]
}

/// The kernel tells where its tables are since 6.0.
fn is_told(kernel: Kernel) -> bool {
    kernel >= Kernel::new(6, 0)
}

fn core_symbols(kernel: Kernel) {
    let kcore = Kcore::open().expect("this is root");
    if !is_told(kernel) {
        let error = kcore.table().expect_err("no tables are told of");
        assert!(matches!(error, SourceError::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("/proc/kallsyms"), "{error}");
        return;
    }
    let table = kcore.table().unwrap_or_else(|error| panic!("{error:?}"));
    let text = source::kallsyms().expect("this is root");
    // As text the per-CPU symbols may be anywhere; the order by address is one.
    let mut core = text.iter().filter(|symbol| symbol.module.is_none());
    let ControlFlow::Continue(()) = table.walk::<std::convert::Infallible>(|index, symbol| {
        assert_eq!(Some(symbol), core.next(), "symbol {index}");
        ControlFlow::Continue(())
    });
    assert_eq!(core.next(), None::<Symbol<'_>>);
    assert!(table.len() > 80_000, "{} symbols", table.len());
}
