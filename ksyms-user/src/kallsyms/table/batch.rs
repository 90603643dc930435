//! The index that a batch of lookups shares.
//!
//! Readers never wait: they load a pointer that arc-swap keeps alive while
//! they hold it, and go by the markers where there is none. Whoever starts or
//! ends a batch takes a lock, so that the first of several builds the index
//! and the last one drops it; the memory is freed by whoever let go of it last.

use std::{
    fmt,
    mem::replace,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwapOption;

use super::{SymbolTable, narrow};

/// Where the name of each symbol begins, four bytes a symbol.
pub(super) struct Offsets(pub(super) Box<[u32]>);

/// What readers see.
pub(super) trait Slot {
    type Value;
    fn publish(&self, value: Option<Self::Value>);
}

/// The number of batches that are open; in `with`, nobody else changes it.
pub(super) trait Open {
    fn with(&self, change: impl FnOnce(&mut usize));
}

/// The protocol: what is open counts, what is published serves all.
///
/// Generic so that it can be tested with loom's primitives.
pub(super) struct Nest<O, S> {
    open: O,
    slot: S,
}

impl<O: Open, S: Slot> Nest<O, S> {
    pub(super) const fn new(open: O, slot: S) -> Self {
        Self { open, slot }
    }

    pub(super) fn start(&self, build: impl FnOnce() -> S::Value) {
        self.open.with(|open| {
            if *open == 0 {
                self.slot.publish(Some(build()));
            }
            *open += 1;
        });
    }

    pub(super) fn end(&self) {
        self.open.with(|open| {
            *open -= 1;
            if *open == 0 {
                self.slot.publish(None);
            }
        });
    }

    pub(super) const fn slot(&self) -> &S {
        &self.slot
    }
}

impl Open for Mutex<usize> {
    fn with(&self, change: impl FnOnce(&mut usize)) {
        // The number is right at all times, also if a build ended in a panic.
        change(&mut self.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Slot for ArcSwapOption<Offsets> {
    type Value = Offsets;

    fn publish(&self, value: Option<Offsets>) {
        self.store(value.map(Arc::new));
    }
}

/// The batches of a table.
pub(super) type Batches = Nest<Mutex<usize>, ArcSwapOption<Offsets>>;

impl Default for Batches {
    fn default() -> Self {
        Self::new(Mutex::new(0), ArcSwapOption::empty())
    }
}

/// An open batch, from [`SymbolTable::batch_start`]; dropping it ends it.
#[must_use = "the batch ends when this is dropped"]
pub struct Batch<'t> {
    table: &'t SymbolTable,
}

impl Batch<'_> {
    /// The size of the index in bytes: four for each symbol.
    #[must_use]
    pub const fn index_bytes(&self) -> usize {
        self.table.len() * size_of::<u32>()
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.table.batches.end();
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("index_bytes", &self.index_bytes())
            .finish_non_exhaustive()
    }
}

impl SymbolTable {
    /// Starts a batch of lookups: builds an index of where each name is, four
    /// bytes a symbol, in one pass over the lengths of the names.
    ///
    /// [`Step::Batch`](super::Step::Batch) and
    /// [`Step::Sequence`](super::Step::Sequence) use it, on every thread, until
    /// the last open batch ends. A batch within a batch costs a lock; lookups
    /// never wait for either.
    pub fn batch_start(&self) -> Batch<'_> {
        self.batches.start(|| self.offsets());
        Batch { table: self }
    }

    /// Where each name begins.
    pub(super) fn offsets(&self) -> Offsets {
        let mut offset = 0;
        let offsets = (0..self.len()).map(|_| {
            let next = self.after(offset);
            narrow(replace(&mut offset, next))
        });
        Offsets(offsets.collect())
    }
}

#[cfg(test)]
mod tests {
    use loom::{sync, thread};

    use super::*;

    /// A value that tells when it is gone.
    struct Value(sync::Arc<sync::atomic::AtomicBool>);

    impl Drop for Value {
        fn drop(&mut self) {
            self.0.store(true, sync::atomic::Ordering::SeqCst);
        }
    }

    /// What arc-swap does, with a lock.
    #[derive(Default)]
    struct Cell(sync::Mutex<Option<sync::Arc<Value>>>);

    impl Cell {
        fn load(&self) -> Option<sync::Arc<Value>> {
            self.0.lock().unwrap().clone()
        }
    }

    impl Slot for Cell {
        type Value = Value;

        fn publish(&self, value: Option<Value>) {
            *self.0.lock().unwrap() = value.map(sync::Arc::new);
        }
    }

    impl Open for sync::Mutex<usize> {
        fn with(&self, change: impl FnOnce(&mut usize)) {
            change(&mut self.lock().unwrap());
        }
    }

    type Model = Nest<sync::Mutex<usize>, Cell>;

    fn value() -> Value {
        Value(sync::Arc::default())
    }

    fn read(nest: &Model) -> bool {
        nest.slot().load().is_some_and(|value| {
            thread::yield_now();
            assert!(
                !value.0.load(sync::atomic::Ordering::SeqCst),
                "freed while in use"
            );
            true
        })
    }

    /// Two batches that overlap in any way, and a reader: within a batch there
    /// is an index, after the last there is none, and none is freed in use.
    #[test]
    fn every_interleaving() {
        let mut model = loom::model::Builder::new();
        // Errors of this kind show with two; without a bound it takes a minute.
        model.preemption_bound = Some(3);
        model.check(|| {
            let nest = sync::Arc::new(Model::new(sync::Mutex::new(0), Cell::default()));
            let batch = |nest: &sync::Arc<Model>| {
                let nest = sync::Arc::clone(nest);
                thread::spawn(move || {
                    nest.start(value);
                    assert!(read(&nest), "a batch without an index");
                    nest.end();
                })
            };
            let threads = [batch(&nest), batch(&nest)];
            read(&nest);
            for thread in threads {
                thread.join().unwrap();
            }
            assert!(!read(&nest), "an index without a batch");
        });
    }

    /// A batch within a batch uses the index that is there.
    #[test]
    fn nested() {
        loom::model(|| {
            let nest = Model::new(sync::Mutex::new(0), Cell::default());
            nest.start(value);
            nest.start(|| unreachable!("built twice"));
            nest.end();
            assert!(read(&nest));
            nest.end();
            assert!(!read(&nest));
        });
    }
}
