//! What is said of repeated measurements.

use serde::Serialize;

/// Median and spread of some samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The middle sample; of an even number, the lower of the two in the middle.
    pub median: u64,
    /// The smallest sample.
    pub min: u64,
    /// The largest sample.
    pub max: u64,
    /// How many samples there were.
    pub samples: usize,
}

impl Summary {
    /// Sums up `samples`, or nothing when there are none.
    #[must_use]
    pub fn of(mut samples: Vec<u64>) -> Option<Self> {
        samples.sort_unstable();
        Some(Self {
            median: *samples.get(samples.len().checked_sub(1)? / 2)?,
            min: *samples.first()?,
            max: *samples.last()?,
            samples: samples.len(),
        })
    }

    /// This median over another's, or nothing when that is 0.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "times are far below 2^52 ns")]
    pub fn ratio_to(&self, other: &Self) -> Option<f64> {
        (other.median > 0).then(|| self.median as f64 / other.median as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_sample() {
        let summary = Summary::of(vec![9, 1, 5]).unwrap();
        assert_eq!((summary.median, summary.min, summary.max), (5, 1, 9));
        assert_eq!(Summary::of(vec![4, 1, 3, 2]).unwrap().median, 2);
        assert_eq!(Summary::of(vec![7]).unwrap().samples, 1);
        assert_eq!(Summary::of(Vec::new()), None);
    }

    #[test]
    fn there_is_no_ratio_to_nothing() {
        let of = |median| Summary::of(vec![median]).unwrap();
        assert_eq!(of(3).ratio_to(&of(2)), Some(1.5));
        assert_eq!(of(3).ratio_to(&of(0)), None);
    }
}
