//! Instants and durations. Instants never decide order: `Seq` does (design 3.1).

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr};

/// Milliseconds since 1970-01-01T00:00:00Z; written as RFC 3339 with milliseconds, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The text is no RFC 3339 instant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an RFC 3339 time: '{0}'")]
pub struct BadTime(String);

impl Timestamp {
    /// From milliseconds since the epoch.
    #[must_use]
    pub fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub fn ms(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, as git dates are kept.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// This instant `ms` milliseconds later (or earlier); saturates.
    #[must_use]
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "@{}ms", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = BadTime;

    fn from_str(text: &str) -> Result<Self, BadTime> {
        text.parse::<jiff::Timestamp>()
            .map(|at| Self(at.as_millisecond()))
            .map_err(|_| BadTime(text.to_owned()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Why a typed duration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDuration {
    /// Not a number with one of the units `ms s m h d`.
    #[error("not a duration: '{0}' (write 500ms, 30s, 5m, 2h or 7d)")]
    Syntax(String),
    /// A bare integer below 1000 could mean seconds.
    #[error("ambiguous duration '{0}': a bare number is milliseconds, write {0}s or {0}ms")]
    Ambiguous(String),
}

/// Parses a duration as people type it (spec cli, Conventions) into milliseconds.
///
/// # Errors
/// Unknown unit, no number, overflow; a bare integer below 1000.
pub fn parse_duration_ms(text: &str) -> Result<u64, BadDuration> {
    let syntax = || BadDuration::Syntax(text.to_owned());
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| syntax())?;
    let factor = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "" if number < 1000 => return Err(BadDuration::Ambiguous(text.to_owned())),
        "" => 1,
        _ => return Err(syntax()),
    };
    number.checked_mul(factor).ok_or_else(syntax)
}

/// A duration for people, in the units that tell most of it; milliseconds.
#[must_use]
pub fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// A duration as it is typed: the largest unit that tells it without a remainder, two days and less in hours; milliseconds.
#[must_use]
pub fn typed_duration(ms: u64) -> String {
    let units: [(u64, &str); 3] = [(3_600_000, "h"), (60_000, "m"), (1000, "s")];
    if ms > 48 * 3_600_000 && ms.is_multiple_of(86_400_000) {
        return format!("{}d", ms / 86_400_000);
    }
    let fits = units.iter().find(|(size, _)| ms > 0 && ms.is_multiple_of(*size));
    fits.map_or_else(|| format!("{ms}ms"), |(size, unit)| format!("{}{unit}", ms / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_round_trip_with_milliseconds() {
        let at = Timestamp::from_ms(1_700_000_000_120);
        assert_eq!(at.to_string(), "2023-11-14T22:13:20.120Z");
        assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
    }

    #[test]
    fn durations_need_a_unit_or_a_large_number() {
        for (text, ms) in
            [("0s", 0), ("500ms", 500), ("30s", 30_000), ("2h", 7_200_000), ("1500", 1500)]
        {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
        }
        assert!(matches!(parse_duration_ms("30"), Err(BadDuration::Ambiguous(_))));
        for text in ["", "s", "-1s", "1 s", "1y", "99999999999999999999d"] {
            assert!(matches!(parse_duration_ms(text), Err(BadDuration::Syntax(_))), "{text}");
        }
    }

    #[test]
    fn durations_are_told_in_the_units_people_write() {
        for ms in [1000, 1500, 90_000, 7_200_000, 86_400_000, 172_800_000, 259_200_000] {
            assert_eq!(parse_duration_ms(&typed_duration(ms)), Ok(ms));
        }
        let typed = [1000, 1500, 90_000, 7_200_000, 172_800_000, 259_200_000].map(typed_duration);
        assert_eq!(typed, ["1s", "1500ms", "90s", "2h", "48h", "3d"]);
        let told = [999, 1250, 61_000, 86_400_000].map(duration);
        assert_eq!(told, ["999 ms", "1.2 s", "1 min 1 s", "24 h 0 min"]);
    }
}
