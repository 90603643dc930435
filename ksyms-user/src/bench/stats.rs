//! What is said of repeated measurements.

use serde::{Serialize, Serializer};

/// Median and spread of some samples.
///
/// Documents have whole numbers as such and others with two decimals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// The middle sample; of an even number, the lower of the two in the middle.
    #[serde(serialize_with = "figure")]
    pub median: f64,
    /// The smallest sample.
    #[serde(serialize_with = "figure")]
    pub min: f64,
    /// The largest sample.
    #[serde(serialize_with = "figure")]
    pub max: f64,
    /// How many samples there were.
    pub samples: usize,
}

impl Summary {
    /// Sums up `samples`, or nothing when there are none.
    #[must_use]
    pub fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_unstable_by(f64::total_cmp);
        Some(Self {
            median: *samples.get(samples.len().checked_sub(1)? / 2)?,
            min: *samples.first()?,
            max: *samples.last()?,
            samples: samples.len(),
        })
    }

    /// The same of whole numbers.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "times and sizes are far below 2^52"
    )]
    pub fn of_whole(samples: &[u64]) -> Option<Self> {
        Self::of(samples.iter().map(|&sample| sample as f64).collect())
    }

    /// This median over another's, or nothing when that is 0.
    #[must_use]
    pub fn ratio_to(&self, other: &Self) -> Option<f64> {
        (other.median > 0.0).then(|| self.median / other.median)
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn figure<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    let value = (value * 100.0).round() / 100.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number that is not negative, far below 2^52"
    )]
    if value.fract() == 0.0 {
        serializer.serialize_u64(value as u64)
    } else {
        serializer.serialize_f64(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_sample() {
        let summary = Summary::of_whole(&[9, 1, 5]).unwrap();
        assert_eq!((summary.median, summary.min, summary.max), (5.0, 1.0, 9.0));
        let even = Summary::of(vec![4.5, 1.0, 3.0, 2.5]).unwrap();
        assert!((even.median - 2.5).abs() < f64::EPSILON);
        assert_eq!(Summary::of(vec![7.0]).unwrap().samples, 1);
        assert_eq!(Summary::of(Vec::new()), None);
    }

    #[test]
    fn there_is_no_ratio_to_nothing() {
        let of = |median| Summary::of(vec![median]).unwrap();
        assert_eq!(of(3.0).ratio_to(&of(2.0)), Some(1.5));
        assert_eq!(of(3.0).ratio_to(&of(0.0)), None);
    }

    #[test]
    fn whole_numbers_stay_whole() {
        let summary = Summary::of(vec![2.0, 3.456, 7.999]).unwrap();
        assert_eq!(
            serde_json::to_string(&summary).unwrap(),
            r#"{"median":3.46,"min":2,"max":8,"samples":3}"#
        );
    }
}
