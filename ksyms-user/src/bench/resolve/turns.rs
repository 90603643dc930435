//! Measured things take turns, so that what disturbs a machine for a while
//! disturbs all of them.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{Ratio, Row, Summary},
    ResolveError,
};
use crate::{kallsyms::SymbolTable, report::nanoseconds};

/// How many rounds there are at most: the samples that slow things get.
const ROUNDS: usize = 9;

/// After this no further round begins, once there were [`FEWEST`].
const LIMIT: Duration = Duration::from_secs(45);
const FEWEST: usize = 3;

/// After this a turn ends, whether or not its share is done.
const TURN: Duration = Duration::from_millis(60);

/// What a sample of many should take at most. About as long for slow
/// operations as for fast ones: the longer a sample, the likelier something
/// else had the CPU meanwhile, which would make slow ones seem slower.
const SAMPLE: Duration = Duration::from_millis(1);

/// Operations in a sample at most.
pub(super) const CHUNK: usize = 4096;

/// What became of a number of operations.
pub(super) enum Outcome {
    /// They took this long; there may have been fewer or more than asked for.
    Took(Duration, usize),
    /// One of them gave a wrong answer.
    Wrong,
    /// This cannot be done here.
    Absent,
}

/// Does about so many operations and times them, and nothing else.
pub(super) type Run<'a> = Box<dyn FnMut(usize) -> Outcome + 'a>;

/// One thing to measure.
pub(super) struct Turn<'a> {
    name: String,
    /// The row that it is compared with.
    base: Option<String>,
    /// Operations in a sample at most.
    most: usize,
    /// Operations in all rounds together; each round has a sample at least.
    quota: usize,
    run: Run<'a>,
    /// The table of which a batch is open during a turn: started before the
    /// first sample, since that takes the caches from what follows it.
    batch: Option<&'a SymbolTable>,
    /// What an operation took when it was last measured, in ns.
    cost: f64,
    samples: Vec<f64>,
}

impl<'a> Turn<'a> {
    /// Operations so short that they are timed together: [`CHUNK`] or fewer.
    pub(super) fn of_many(name: String, quota: usize, run: Run<'a>) -> Self {
        Self {
            name,
            base: None,
            most: CHUNK,
            quota,
            run,
            batch: None,
            cost: 0.0,
            samples: Vec::new(),
        }
    }

    /// Operations that are each timed alone, `times` in a round if they are
    /// short enough.
    pub(super) fn of_one(name: impl Into<String>, times: usize, run: Run<'a>) -> Self {
        Self {
            most: 1,
            ..Self::of_many(name.into(), times * ROUNDS, run)
        }
    }

    /// Compares it with another row.
    pub(super) fn against(self, base: String) -> Self {
        Self {
            base: Some(base),
            ..self
        }
    }

    /// Takes its turns in a batch of `table`, if any.
    pub(super) fn within(self, table: Option<&'a SymbolTable>) -> Self {
        Self {
            batch: table,
            ..self
        }
    }

    /// Operations that are not counted: they fill caches, initialise what is
    /// initialised at first use, and tell what one takes. Whether it can be
    /// done here.
    fn warm_up(&mut self) -> Result<bool, ResolveError> {
        let _batch = self.batch.map(SymbolTable::batch_start);
        let mut count = 1;
        if self.sample(count)?.is_none() {
            return Ok(false);
        }
        while count < self.most {
            match self.sample(count)? {
                None => return Ok(false),
                Some(time) if time > SAMPLE / 4 => break,
                Some(_) => count *= 4,
            }
        }
        self.samples.clear();
        Ok(true)
    }

    fn round(&mut self, rounds: usize) -> Result<(), ResolveError> {
        let _batch = self.batch.map(SymbolTable::batch_start);
        let begin = Instant::now();
        let mut left = self.quota.div_ceil(rounds);
        while left > 0 && begin.elapsed() < TURN {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "not negative, and as many as fit will do"
            )]
            let fit = (SAMPLE.as_secs_f64() * 1e9 / self.cost) as usize;
            let count = left.min(self.most).min(fit.max(1));
            self.sample(count)?;
            left -= count;
        }
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn sample(&mut self, count: usize) -> Result<Option<Duration>, ResolveError> {
        thread::yield_now();
        match (self.run)(count) {
            Outcome::Took(time, operations) => {
                self.cost = nanoseconds(time) as f64 / operations.max(1) as f64;
                self.samples.push(self.cost);
                Ok(Some(time))
            }
            Outcome::Absent => Ok(None),
            Outcome::Wrong => Err(ResolveError::Wrong {
                row: self.name.clone(),
            }),
        }
    }
}

/// Measures all of `turns`; what cannot be measured has no row.
///
/// There are never more rounds than `iters`.
pub(super) fn take(mut turns: Vec<Turn<'_>>, iters: usize) -> Result<Vec<Row>, ResolveError> {
    let mut absent = Vec::new();
    for (at, turn) in turns.iter_mut().enumerate() {
        if !turn.warm_up()? {
            absent.push(at);
        }
    }
    for at in absent.into_iter().rev() {
        turns.remove(at);
    }
    let rounds = iters.clamp(1, ROUNDS);
    let begin = Instant::now();
    for round in 0..rounds {
        if round >= FEWEST && begin.elapsed() > LIMIT {
            break;
        }
        for turn in &mut turns {
            turn.round(rounds)?;
        }
    }
    let mut rows: Vec<Row> = Vec::new();
    for turn in turns {
        let Some(summary) = Summary::of(turn.samples) else {
            continue;
        };
        let base = turn.base.and_then(|base| {
            let is_own = base == turn.name;
            let other = rows.iter().find(|row| row.name == base);
            if is_own {
                Some(summary)
            } else {
                other.map(|row| row.summary)
            }
        });
        rows.push(Row {
            name: turn.name,
            unit: "ns",
            summary,
            ratio: base
                .and_then(|base| base.ratio_to(&summary))
                .map(Ratio::ToStep1),
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(nanoseconds: u64) -> Run<'static> {
        Box::new(move |count| {
            Outcome::Took(Duration::from_nanos(nanoseconds * count as u64), count)
        })
    }

    #[test]
    fn a_quota_is_spread_over_rounds_and_chunks() {
        let rows = |iters, cost| {
            let turn = Turn::of_many("x".into(), iters, took(cost));
            take(vec![turn], iters).unwrap().remove(0).summary
        };
        // 100,000 in 9 rounds: 11,112 each, in chunks of 4,096.
        assert_eq!(rows(100_000, 5).samples, 27);
        assert!((rows(100_000, 5).median - 5.0).abs() < f64::EPSILON);
        assert_eq!(rows(9, 5).samples, 9);
        assert_eq!(rows(2, 5).samples, 2);
        assert_eq!(rows(1, 5).samples, 1);
        // A chunk of what is slow is shorter: 100 fit into 1 ms.
        assert_eq!(rows(1_800, 10_000).samples, 18);
    }

    #[test]
    fn ratios_say_how_many_times_faster() {
        let turn = |name: &str, cost| {
            Turn::of_many(name.into(), 10, took(cost)).against("step1".to_owned())
        };
        let rows = take(vec![turn("step1", 500), turn("fast", 10)], 10).unwrap();
        let ratios: Vec<_> = rows.iter().map(|row| row.ratio).collect();
        assert_eq!(
            ratios,
            [Some(Ratio::ToStep1(1.0)), Some(Ratio::ToStep1(50.0))]
        );
    }

    #[test]
    fn what_cannot_be_measured_is_absent_and_what_is_wrong_is_an_error() {
        let absent = Turn::of_one("absent", 1, Box::new(|_| Outcome::Absent));
        let there = Turn::of_one("there", 1, took(7));
        let rows = take(vec![absent, there], 10).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!((&*rows[0].name, rows[0].ratio), ("there", None));

        let wrong = Turn::of_one("wrong/one", 1, Box::new(|_| Outcome::Wrong));
        let error = take(vec![wrong], 10).unwrap_err();
        assert!(error.to_string().contains("wrong/one"), "{error}");
    }
}
