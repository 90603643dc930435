//! On a kernel with the module `dummy` loaded.

use libtest_mimic::Trial;

use crate::harness::{Kernel, ksyms_attach, list, listed, number, run, test, text};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("module::its_functions_are_attached", attached),
        test("module::the_core_kernel_is_kept_apart", core_kernel),
    ]
}

fn attached(_: Kernel) {
    let document = run(&mut ksyms_attach([
        "--pattern",
        "dummy:*",
        "--format",
        "json",
        "--duration",
        "0s",
    ]))
    .exits(0)
    .json();
    let counts = list(&document, "/counts");
    assert!(counts.len() > 3, "{document:#}");
    for count in counts {
        assert_eq!(text(count, "/module"), "dummy");
    }
    assert!(
        counts
            .iter()
            .any(|count| text(count, "/name") == "dummy_xmit")
    );
}

fn core_kernel(_: Kernel) {
    let attached = |pattern| number(&listed(pattern), "/targets/attachable");
    // dummycon_* are the core kernel's, dummy_* the module's and the core's.
    let [both, core, module] = ["dummy*", "vmlinux:dummy*", "dummy:dummy*"].map(attached);
    assert!(core > 0 && module > 0, "{core} + {module}");
    assert_eq!(both, core + module);
}
