//! ftrace's own records of what it can patch (kernel/trace/ftrace.c).

use super::{
    KcoreError, Layouts, Memory,
    memory::{self, Structure, is_kernel, u64_at},
    variables::{STEXT, Variables},
};
use crate::{
    kallsyms::SymbolTable,
    source::{Locations, traceable::MAX_ENTRY_OFFSET},
};

/// More groups of records than there are modules on any machine.
const MAX_GROUPS: usize = 1 << 14;

/// Kernels have some 50,000 functions that can be patched, their modules as
/// many again.
const MAX_RECORDS: usize = 1 << 22;

/// As many as fit into what the page allocator hands out in one piece.
const MAX_GROUP: usize = 1 << 19;

/// Reads where ftrace patches functions: as `available_filter_functions_addrs`
/// has it, without what that calls `__ftrace_invalid_address__`.
pub(super) fn locations(
    memory: &impl Memory,
    table: &SymbolTable,
    variables: &Variables,
    layouts: &Layouts,
) -> Result<Locations, KcoreError> {
    let start = variables
        .get("ftrace_pages_start")
        .ok_or(KcoreError::Symbol("ftrace_pages_start"))?;
    let record = Structure::new(layouts, "dyn_ftrace")?;
    let (size, ip) = (record.size(), record.member("ip")?.offset);
    let groups = groups(memory, start, layouts)?;
    let mut addresses = Vec::new();
    let mut records = Vec::new();
    for group in &groups {
        records.resize(group.count * size, 0);
        memory::fill(memory, "ftrace records", group.records, &mut records)?;
        for (index, record) in records.chunks_exact(size).enumerate() {
            let address = memory::field(record, ip).map_or(0, u64::from_ne_bytes);
            if !is_kernel(address) {
                return Err(KcoreError::Implausible {
                    what: "an ftrace record of no function",
                    address: group.records.wrapping_add((index * size) as u64),
                    value: address,
                });
            }
            addresses.push(address);
        }
    }
    // What was unlinked may since have been something else's memory.
    if self::groups(memory, start, layouts)? != groups {
        return Err(KcoreError::Changed("ftrace's records"));
    }
    addresses.sort_unstable();
    let stext = variables.get(STEXT).ok_or(KcoreError::Symbol(STEXT))?;
    keep_entries(&mut addresses, table, stext);
    Ok(Locations::new(addresses))
}

/// A `struct ftrace_page`.
#[derive(PartialEq, Eq)]
struct Group {
    at: u64,
    records: u64,
    count: usize,
}

fn groups(memory: &impl Memory, start: u64, layouts: &Layouts) -> Result<Vec<Group>, KcoreError> {
    let structure = Structure::new(layouts, "ftrace_page")?;
    let (mut groups, mut total) = (Vec::new(), 0);
    let mut at = u64_at(memory, "ftrace_pages_start", start)?;
    while at != 0 {
        if groups.len() == MAX_GROUPS {
            return Err(KcoreError::Implausible {
                what: "a list of ftrace's without end",
                address: start,
                value: at,
            });
        }
        let page = structure.read(memory, at)?;
        let group = Group {
            at,
            records: page.pointer("records")?,
            count: page.count("index", MAX_GROUP.min(MAX_RECORDS - total))?,
        };
        total += group.count;
        groups.push(group);
        at = page.int("next")?;
    }
    Ok(groups)
}

/// Drops what is in the core kernel but not at a symbol's entry: functions that
/// the linker dropped for others of the same name (since 5.19,
/// `FTRACE_MCOUNT_MAX_OFFSET`). `addresses` are sorted.
fn keep_entries(addresses: &mut Vec<u64>, table: &SymbolTable, stext: u64) {
    let end = table.len();
    let core = stext..=table.address(end - 1);
    // From this symbol to the next.
    let mut next = table.at(stext).map_or(end, |place| place.index);
    let (mut entry, mut until) = (0, stext);
    addresses.retain(|&address| {
        if !core.contains(&address) {
            return true;
        }
        while until <= address {
            entry = until;
            next += 1;
            until = if next < end {
                table.address(next)
            } else {
                u64::MAX
            };
        }
        address - entry <= MAX_ENTRY_OFFSET
    });
}
