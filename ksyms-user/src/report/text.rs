//! Numbers and columns for people.

use std::{
    io::{self, Write},
    time::Duration,
};

/// A count with its thousands apart: `1,234,567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A time with three digits or so: `1.23 s`, `45.6 ms`, `789 us`, `12 ns`.
#[must_use]
pub fn duration(time: Duration) -> String {
    let units = [("s", 1.0), ("ms", 1e-3), ("us", 1e-6)];
    let seconds = time.as_secs_f64();
    for (unit, size) in units {
        let value = seconds / size;
        if value >= 1.0 {
            let decimals = match value {
                100.0.. => 0,
                10.0.. => 1,
                _ => 2,
            };
            return format!("{value:.decimals$} {unit}");
        }
    }
    format!("{} ns", time.as_nanos())
}

/// Which way a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Writes `rows` under `header`, columns two blanks apart, without trailing
/// blanks.
pub(crate) fn columns<const N: usize>(
    header: [(&str, Align); N],
    rows: &[[String; N]],
    out: &mut impl Write,
) -> io::Result<()> {
    let mut widths = header.map(|(title, _)| title.len());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut line = |cells: [&str; N]| {
        let mut text = String::new();
        for (index, cell) in cells.into_iter().enumerate() {
            if index > 0 {
                text.push_str("  ");
            }
            let blanks = " ".repeat(widths[index] - cell.chars().count());
            match header[index].1 {
                Align::Left => text.extend([cell, &blanks]),
                Align::Right => text.extend([&blanks, cell]),
            }
        }
        writeln!(out, "{}", text.trim_end())
    };
    line(header.map(|(title, _)| title))?;
    for row in rows {
        line(row.each_ref().map(String::as_str))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (123_456, "123,456"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn times_keep_three_digits() {
        for (nanoseconds, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (45_678, "45.7 us"),
            (456_789_000, "457 ms"),
            (1_234_000_000, "1.23 s"),
            (120_000_000_000, "120 s"),
        ] {
            assert_eq!(duration(Duration::from_nanos(nanoseconds)), text);
        }
    }

    #[test]
    fn columns_line_up() {
        let mut out = Vec::new();
        let rows = [
            ["a".to_owned(), "1".to_owned()],
            ["bcd".to_owned(), "23".to_owned()],
        ];
        columns(
            [("NAME", Align::Left), ("HITS", Align::Right)],
            &rows,
            &mut out,
        )
        .unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "NAME  HITS\na        1\nbcd     23\n"
        );
    }
}
