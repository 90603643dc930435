//! What the kernel's memory says, against what its text files say.

use std::{convert::Infallible, fs, ops::ControlFlow};

use ksyms::{
    kallsyms::Symbol,
    source::{self, Kcore, Layouts, SourceError, Traceable, Tracefs},
};
use libtest_mimic::Trial;

use rustix::process::Signal;

use crate::harness::{Kernel, ksyms_attach, start, test, test_if};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("every_kernel::kcore_core_symbols", core_symbols),
        test_if("every_kernel::kcore_locations", untold, locations),
        test_if("every_kernel::kcore_modules", untold, module_symbols),
        test_if(
            "every_kernel::kcore_made_at_run_time",
            untold,
            made_at_run_time,
        ),
        test_if("module::kcore_locations", untold, locations),
        test_if("module::kcore_modules", untold, symbols_of_loaded_modules),
    ]
}

/// The kernel tells where its tables are since 6.0.
fn is_told(kernel: Kernel) -> bool {
    kernel >= Kernel::new(6, 0)
}

fn untold(kernel: Kernel) -> Option<&'static str> {
    (!is_told(kernel)).then_some("this kernel does not tell where its tables are")
}

fn ok<T>(result: Result<T, SourceError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

fn core_symbols(kernel: Kernel) {
    let kcore = ok(Kcore::open());
    if !is_told(kernel) {
        let error = kcore.table().expect_err("no tables are told of");
        assert!(matches!(error, SourceError::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("/proc/kallsyms"), "{error}");
        return;
    }
    let table = ok(kcore.table());
    let text = ok(source::kallsyms());
    let mut core = text.iter().filter(|symbol| symbol.module.is_none());
    let ControlFlow::Continue(()) = table.walk::<Infallible>(|index, symbol| {
        assert_eq!(Some(symbol), core.next(), "symbol {index}");
        ControlFlow::Continue(())
    });
    assert_eq!(core.next(), None::<Symbol<'_>>);
    assert!(table.len() > 80_000, "{} symbols", table.len());
}

fn locations(_: Kernel) {
    let kcore = ok(Kcore::open());
    let table = ok(kcore.table());
    let found = ok(kcore.ftrace_locations(&table, &ok(Layouts::read())));
    assert!(found.as_slice().len() > 30_000);
    match ok(Traceable::read(&ok(Tracefs::open()))) {
        Traceable::Locations(text) => assert_eq!(found.as_slice(), text.as_slice()),
        Traceable::Names(text) => {
            assert_eq!(
                Some(found.as_slice().len()),
                Traceable::Names(text).function_count()
            );
            let mut lines: Vec<String> = read("/sys/kernel/tracing/available_filter_functions")
                .lines()
                .filter(|line| !line.starts_with("__ftrace_invalid_address__"))
                .map(|line| line.replace('\t', " "))
                .collect();
            lines.sort();
            let symbols = ok(source::kallsyms());
            let mut names: Vec<String> = found
                .as_slice()
                .iter()
                .map(|&at| {
                    let symbol = (0..=8)
                        .find_map(|offset| symbols.at(at - offset).next())
                        .unwrap_or_else(|| panic!("nothing is at {at:#x}"));
                    match symbol.module {
                        Some(module) => format!("{} [{module}]", symbol.name),
                        None => symbol.name.to_owned(),
                    }
                })
                .collect();
            names.sort();
            assert_eq!(names, lines);
        }
        Traceable::Unknown => panic!("this is root"),
    }
}

/// Lines of /proc/kallsyms, as far as they have a module; sorted.
fn lines_with_modules() -> Vec<String> {
    let mut lines: Vec<String> = read("/proc/kallsyms")
        .lines()
        .filter(|line| line.ends_with(']'))
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

/// The same, from the kernel's memory.
fn found_with_modules() -> Vec<String> {
    let kcore = ok(Kcore::open());
    let table = ok(kcore.table());
    let mut found = Vec::new();
    ok(
        kcore.module_symbols(&table, &ok(Layouts::read()), |symbol| {
            found.push(format!(
                "{:016x} {} {}\t[{}]",
                symbol.address,
                char::from(symbol.kind),
                symbol.name,
                symbol.module.unwrap_or_default(),
            ));
        }),
    );
    found.sort();
    found
}

/// Checks that both are equal, and returns them.
fn module_lines() -> Vec<String> {
    let (text, found) = (lines_with_modules(), found_with_modules());
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        these
            .iter()
            .filter(|line| !those.contains(line))
            .take(9)
            .cloned()
            .collect()
    };
    assert!(
        text == found,
        "{} lines of text, {} found; only text {:#?}, only found {:#?}",
        text.len(),
        found.len(),
        only(&text, &found),
        only(&found, &text)
    );
    found
}

fn module_symbols(_: Kernel) {
    module_lines();
}

fn symbols_of_loaded_modules(_: Kernel) {
    let lines = module_lines();
    let has = |end: &str| lines.iter().any(|line| line.ends_with(end));
    assert!(has(" t dummy_xmit\t[dummy]"), "{lines:#?}");
    // Exported.
    assert!(has(" T llc_sap_open\t[llc]"), "{lines:#?}");
}

fn made_at_run_time(kernel: Kernel) {
    let mut running = start(&mut ksyms_attach([
        "-v",
        "--pattern",
        "tcp_v4_rcv",
        "--duration",
        "60s",
    ]));
    running.wait_until_counting();
    let lines = module_lines();
    let has = |word: &str| lines.iter().any(|line| line.contains(word));
    assert!(has("\t[bpf]"), "{lines:#?}");
    if kernel.has_multi() {
        assert!(has("ftrace_trampoline\t[__builtin__ftrace]"), "{lines:#?}");
    }
    running.signal(Signal::INT);
    running.finish().exits(0);
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}
