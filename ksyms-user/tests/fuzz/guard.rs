//! Notes the largest allocation that each thread makes.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

struct Guard;

#[global_allocator]
static GUARD: Guard = Guard;

fn note(size: usize) {
    LARGEST.with(|largest| largest.set(largest.get().max(size)));
}

/// The size in bytes of the largest allocation that `run` makes on this
/// thread, and what it returns.
pub(crate) fn largest<T>(run: impl FnOnce() -> T) -> (usize, T) {
    LARGEST.with(|largest| largest.set(0));
    let result = run();
    (LARGEST.with(Cell::get), result)
}

#[expect(unsafe_code, reason = "allocators are")]
// SAFETY: everything is left to the system's allocator. Noting a size neither
// allocates nor unwinds: the thread's cell is constant and has no destructor.
unsafe impl GlobalAlloc for Guard {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps to what both traits' methods ask for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: as above; `pointer` came from `System`, as all do.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; `pointer` came from `System`, as all do.
        unsafe { System.dealloc(pointer, layout) }
    }
}
