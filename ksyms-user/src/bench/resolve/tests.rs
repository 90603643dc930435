use std::fmt::Write as _;

use serde_json::Value;

use super::*;
use crate::report::Format;

fn text(symbols: u64) -> String {
    let mut text = String::new();
    for number in 0..symbols {
        let address = 0xffff_ffff_8100_0000 + 32 * (number - number % 7 / 6);
        writeln!(text, "{address:016x} t tcp_{}_function", number % 500).unwrap();
    }
    writeln!(text, "ffffffff82000000 T vfs_read").unwrap();
    text
}

struct Loaded {
    file: tempfile::NamedTempFile,
    symbols: Symbols,
    table: SymbolTable,
}

impl Loaded {
    fn new() -> Self {
        let text = text(599);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &text).unwrap();
        let symbols = Symbols::parse(text).unwrap();
        let table = SymbolTable::encode(&symbols).unwrap();
        Self {
            file,
            symbols,
            table,
        }
    }

    fn bench(&self, iters: usize) -> ResolveBench<'_> {
        ResolveBench {
            iters: NonZeroUsize::new(iters).unwrap(),
            table: &self.table,
            origin: "a test".to_owned(),
            symbols: Some(&self.symbols),
            text: Some(self.file.path()),
            resident: None,
            sources: Vec::new(),
        }
    }
}

fn document(bench: &Bench) -> Value {
    let mut out = Vec::new();
    bench.write(Format::Json, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

fn row<'a>(document: &'a Value, name: &str) -> &'a Value {
    let mut rows = document["rows"].as_array().unwrap().iter();
    rows.find(|row| row["name"] == name)
        .unwrap_or_else(|| unreachable!("no row {name}"))
}

#[test]
fn every_row_is_there_and_has_its_ratio() {
    let loaded = Loaded::new();
    let document = document(&resolve(loaded.bench(1)).unwrap());
    assert_eq!(document["schema"], "ksyms-bench/1");
    assert_eq!(document["bench"], "resolve");
    assert_eq!(document["table"]["symbols"], 600);
    assert_eq!(document["table"]["origin"], "a test");
    assert_eq!(document["hot"][0], "vfs_read");
    assert_eq!(document["hot"].as_array().unwrap().len(), 8);
    assert_eq!(document["plans"].as_array().unwrap().len(), 3);
    for lookup in [
        "step1",
        "step2",
        "step3",
        "step4",
        "fast",
        "std-hashmap",
        "proc-scan",
    ] {
        for set in ["hot", "all"] {
            for kind in ["hit", "miss"] {
                let row = row(&document, &format!("{lookup}/{set}/{kind}"));
                assert!(row["ratio_to_step1"].as_f64().unwrap() > 0.0, "{row}");
                assert!(row["median"].as_f64().unwrap() > 0.0, "{row}");
                assert_eq!(row["unit"], "ns");
                if lookup == "step1" {
                    assert_eq!(row["ratio_to_step1"], 1.0);
                }
            }
        }
    }
    for batch in ["n10", "n100", "nall"] {
        for kind in ["hit", "miss"] {
            for lookup in ["batch", "batch+index"] {
                let row = row(&document, &format!("{lookup}/{batch}/{kind}"));
                assert!(row["ratio_to_step1"].as_f64().unwrap() > 0.0, "{row}");
            }
        }
    }
    for name in [
        "setup",
        "teardown",
        "walk",
        "walk+batch",
        "addr/plain",
        "addr/plain+batch",
        "addr/offset",
        "addr/offset+batch",
        "fast/setup",
        "fast/index",
        "std-hashmap/build",
        "encode",
    ] {
        assert!(row(&document, name).get("ratio_to_step1").is_none());
    }
    assert_eq!(row(&document, "index")["median"], 4 * 600);
    assert_eq!(row(&document, "index")["unit"], "bytes");
    // There are not so many names.
    let rows = document["rows"].to_string();
    assert!(!rows.contains("n1000") && !rows.contains("source/"));
}

#[test]
#[cfg(feature = "blazesym")]
fn blazesym_answers() {
    let loaded = Loaded::new();
    let document = document(&resolve(loaded.bench(1)).unwrap());
    assert!(row(&document, "blazesym/addr")["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn sources_that_cannot_be_read_have_no_row() {
    let loaded = Loaded::new();
    let source = |row, read: fn() -> Option<Box<dyn Any>>| Source {
        row,
        read: Box::new(read),
    };
    let bench = resolve(ResolveBench {
        sources: vec![
            source("source/absent", || None),
            source("source/slow", || {
                std::thread::sleep(Duration::from_millis(2));
                Some(Box::new(()))
            }),
        ],
        symbols: None,
        text: None,
        resident: Some(4_096),
        ..loaded.bench(1)
    })
    .unwrap();
    let names: Vec<_> = bench.rows().iter().map(|row| &*row.name).collect();
    for absent in [
        "source/absent",
        "encode",
        "proc-scan/hot/hit",
        "blazesym/addr",
    ] {
        assert!(!names.contains(&absent), "{names:?}");
    }
    assert!(names.contains(&"resident"));
    let slow = bench.rows().iter().find(|row| row.name == "source/slow");
    assert!(slow.unwrap().summary.min >= 2e6);
}

#[test]
fn wrong_answers_are_noticed() {
    let loaded = Loaded::new();
    let listing = Listing::of(&loaded.table);
    let first = listing.first();
    let names = Names::draw(listing.names.iter().collect(), &first);
    let right = names.sets(|name| symbol(first.get(name).copied()));
    // Each answer is off by one.
    let wrong = names.sets(|name| 1 + symbol(first.get(name).copied()));
    let is_right = |mut run: Run<'_>| matches!(run(20), Outcome::Took(..));
    let find = |name: &str| symbol(loaded.table.first(Step::Expand, name));
    let parts = loaded.table.to_parts();
    for (sets, expected) in [(&right, true), (&wrong, false)] {
        for set in sets {
            assert_eq!(is_right(lookups(set, find)), expected);
        }
        for set in &sets[2..] {
            assert_eq!(is_right(batches(set, 10, &loaded.table)), expected);
            assert_eq!(is_right(fresh_batches(set, 10, &parts)), expected);
        }
    }
    let places = places(&listing);
    let addresses = Addresses::new(&places, |place| place.to_string().len());
    let table = &loaded.table;
    let print = |plain: bool| {
        move |address, out: &mut String| {
            let described = table.describe(address).unwrap();
            if plain {
                write!(out, "{described:#}").unwrap();
            } else {
                write!(out, "{described}").unwrap();
            }
        }
    };
    assert!(is_right(addresses.run(print(false))));
    assert!(!is_right(addresses.run(print(true))));
}

#[test]
fn a_setup_pays_after_what_it_saves() {
    let row = |name: &str, median: f64| Row {
        name: name.to_owned(),
        unit: "ns",
        summary: Summary::of(vec![median]).unwrap(),
        ratio: None,
    };
    let mut rows = vec![
        row("step2/all/hit", 5_000.0),
        row("step3/all/hit", 1_000.0),
        row("setup", 400_000.0),
        row("teardown", 1.0),
    ];
    let lookups = break_even(&rows).unwrap();
    assert_eq!((lookups.unit, lookups.summary.samples), ("lookups", 1));
    assert!((lookups.summary.median - 101.0).abs() < f64::EPSILON);
    // Nothing is saved.
    rows[1].summary.median = 6_000.0;
    assert_eq!(break_even(&rows), None);
    assert_eq!(break_even(&rows[1..]), None);
}

#[test]
fn tables_and_csv_name_the_ratio() {
    let loaded = Loaded::new();
    let bench = resolve(loaded.bench(1)).unwrap();
    let write = |format| {
        let mut out = Vec::new();
        bench.write(format, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let csv = write(Format::Csv);
    assert!(csv.starts_with("name,unit,median,min,max,samples,ratio_to_step1\n"));
    let table = write(Format::Table);
    assert!(table.lines().next().unwrap().ends_with("X STEP1"));
    assert!(table.contains("600 symbols of a test"), "{table}");
    assert!(!table.contains("floor"), "{table}");
}
