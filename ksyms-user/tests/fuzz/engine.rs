//! Inputs that are nearly right, the same in each run.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
};

use crate::guard;

/// What may be allocated at once, in bytes: for each byte of the input, and
/// whatever the input, for fixed tables.
const PER_BYTE: usize = 64;
const FIXED: usize = 1 << 20;

/// What is fed to, and in what form.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// How many inputs it is given where nothing else is asked for: one to two
    /// seconds of them, without optimisation.
    pub(crate) iterations: u64,
    /// Good inputs, which are damaged.
    pub(crate) seeds: Vec<Vec<u8>>,
    /// Where in each seed the numbers are that matter most, if that is known:
    /// every second damage is there.
    pub(crate) spots: Vec<Vec<usize>>,
    /// What the format consists of, to be put anywhere.
    pub(crate) words: &'static [&'static [u8]],
    /// [`PER_BYTE`], or more for what has limits of its own.
    pub(crate) per_byte: usize,
    /// [`FIXED`], or more.
    pub(crate) fixed: usize,
}

impl Target {
    pub(crate) fn new(name: &'static str, iterations: u64, seeds: Vec<Vec<u8>>) -> Self {
        Self {
            name,
            iterations,
            seeds,
            spots: Vec::new(),
            words: &[],
            per_byte: PER_BYTE,
            fixed: FIXED,
        }
    }

    /// Feeds `run` with damaged seeds, which says whether it could read one.
    ///
    /// It is to panic where something does not hold; so does this, with how to
    /// have the same again, when it did, or when it allocated too much at once.
    pub(crate) fn feed(&self, run: impl Fn(&[u8]) -> bool) {
        let number = |name, default| {
            let text = env::var(name);
            text.map_or(default, |text| text.parse().expect("a number"))
        };
        let first = number("KSYMS_FUZZ_SEED", 0);
        let iterations = number("KSYMS_FUZZ_ITERATIONS", self.iterations);
        let mut good = 0;
        for seed in first..first.saturating_add(iterations) {
            let input = self.input(seed);
            let (largest, result) =
                guard::largest(|| catch_unwind(AssertUnwindSafe(|| run(&input))));
            let limit = self.per_byte * input.len() + self.fixed;
            match result {
                Ok(read) if largest <= limit => good += u64::from(read),
                Ok(_) => {
                    self.keep(seed, &input);
                    panic!("{largest} bytes allocated at once, more than {limit}");
                }
                Err(panic) => {
                    self.keep(seed, &input);
                    resume_unwind(panic);
                }
            }
        }
        // Damage that is seen at once, or is none, tests nothing.
        let bad = iterations - good;
        let enough = if iterations < 500 { 0 } else { iterations / 50 };
        assert!(good >= enough && bad >= enough, "{good} good, {bad} bad");
    }

    /// Keeps an input that something did not hold for, and says how to have it
    /// again.
    fn keep(&self, seed: u64, input: &[u8]) {
        let name = self.name;
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}-{seed}"));
        let kept = fs::write(&path, input);
        eprintln!(
            "input of {} bytes, kept in {} ({kept:?}); the same again:\n\
             KSYMS_FUZZ_SEED={seed} KSYMS_FUZZ_ITERATIONS=1 cargo test --test fuzz {name}",
            input.len(),
            path.display(),
        );
    }

    fn input(&self, seed: u64) -> Vec<u8> {
        let mut numbers = Numbers(seed);
        let chosen = numbers.below(self.seeds.len());
        let mut input = self.seeds[chosen].clone();
        // Most damage is small, so that it gets past the first checks.
        for _ in 0..1 << numbers.below(4) {
            match self.spots.get(chosen) {
                Some(spots) if numbers.below(2) == 0 => {
                    let spot = *numbers.of(spots);
                    overwrite(&mut input, spot, &mut numbers);
                }
                _ => self.damage(&mut input, &mut numbers),
            }
        }
        input
    }

    fn damage(&self, input: &mut Vec<u8>, numbers: &mut Numbers) {
        let at = numbers.below(input.len() + 1);
        let longest = 1 << numbers.below(10);
        let end = input.len().min(at + 1 + numbers.below(longest));
        match numbers.below(12) {
            0..=2 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << numbers.below(8);
                }
            }
            3 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = numbers.byte();
                }
            }
            4 => input.truncate(at),
            5 => drop(input.drain(at..end)),
            6 => {
                let copy = input[at..end].to_vec();
                let to = numbers.below(input.len() + 1);
                input.splice(to..to, copy);
            }
            7 => {
                let other = numbers.of(&self.seeds);
                let from = numbers.below(other.len() + 1);
                let to = other.len().min(from + 1 + numbers.below(256));
                input.splice(at..end, other[from..to].iter().copied());
            }
            8 => {
                let byte = numbers.byte();
                let len = *numbers.of(&[1, 2, 40, 127, 128, 511, 512, 4_096, 70_000]);
                input.splice(at..at, vec![byte; len]);
            }
            9 | 10 => overwrite(input, at, numbers),
            _ if self.words.is_empty() => input.push(numbers.byte()),
            _ => {
                let word = *numbers.of(self.words);
                let end = *numbers.of(&[at, end]);
                input.splice(at..end, word.iter().copied());
            }
        }
    }
}

/// Puts a number at its extremes into the input.
fn overwrite(input: &mut [u8], at: usize, numbers: &mut Numbers) {
    let number = extreme(input.len(), numbers).to_le_bytes();
    let width = *numbers.of(&[2, 3, 4, 8]);
    for (to, from) in input.iter_mut().skip(at).zip(&number[..width]) {
        *to = *from;
    }
}

/// A length, an offset or a count that is hard to get right.
fn extreme(len: usize, numbers: &mut Numbers) -> u64 {
    let number = *numbers.of(&[
        0,
        0x7f,
        0xff,
        0x7fff,
        0xffff,
        1 << 24,
        0x7fff_ffff,
        0xffff_ffff,
        1 << 32,
        i64::MAX.cast_unsigned(),
        u64::MAX,
        len as u64,
        0xffff_ffff_8100_0000,
    ]);
    number.wrapping_add(numbers.below(3) as u64).wrapping_sub(1)
}

/// Numbers that look random (splitmix64).
pub(crate) struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("less than end")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}
