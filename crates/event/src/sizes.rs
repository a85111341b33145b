//! How large fragments are: a function of seed, source and heartbeat id, so that a source that was started again makes the same.

use std::f64::consts::TAU;
use std::sync::Arc;
use thiserror::Error;
use weir_core::units::Bytes;

/// No fragment's payload is larger.
pub const PAYLOAD_BYTES_MAX: u32 = 64 << 20;
/// Lines of a list of sizes.
const LISTED_MAX: usize = 16 << 20;

/// Why a text gives no sizes; it says what would.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SizesError(pub String);

fn refused<T>(problem: impl Into<String>) -> Result<T, SizesError> {
    Err(SizesError(problem.into()))
}

/// Numbers that follow from a state alone (SplitMix64; Steele, Lea, Flood, OOPSLA 2014).
pub(crate) struct Draws(u64);

impl Draws {
    /// Of heartbeat `id`; `salt` tells sources, runs and purposes apart.
    pub(crate) fn of(salt: u64, id: u64) -> Draws {
        let mut first = Draws(id);
        Draws(salt ^ first.next())
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    /// Above 0 and at most 1, so that it has a logarithm.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
    /// Box, Muller, Annals of Mathematical Statistics 29(2), 1958.
    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (TAU * self.unit()).cos()
    }
}

/// What sizes are drawn from, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    Uniform,
    Normal {
        mean_bytes: f64,
        sigma_bytes: f64,
    },
    Exponential {
        mean_bytes: f64,
    },
    /// Mean and standard deviation are those of the sizes, not of their logarithms.
    LogNormal {
        mean_bytes: f64,
        sigma_bytes: f64,
    },
}

/// Payload bytes of fragments; headers are not in them.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    Fixed(u32),
    /// What falls outside the bounds is put on the nearer one, so the mean of what is made can differ from that of the shape.
    Drawn {
        shape: Shape,
        bytes_min: u32,
        bytes_max: u32,
    },
    /// In turn, from the first again after the last.
    Listed(Listed),
}

/// Sizes of a list with what comes before each of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// One more than there are sizes; the last is the sum.
    starts: Arc<[u64]>,
}

impl Sizes {
    /// Payload of heartbeat `id`; `salt` tells sources and runs apart.
    pub fn bytes(&self, salt: u64, id: u64) -> u32 {
        match self {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Drawn { shape, bytes_min, bytes_max } => {
                let mut draws = Draws::of(salt, id);
                let value = match *shape {
                    Shape::Uniform => {
                        let span = u64::from(bytes_max - bytes_min) + 1;
                        return bytes_min + ((u128::from(draws.next()) * u128::from(span)) >> 64) as u32;
                    }
                    Shape::Normal { mean_bytes, sigma_bytes } => mean_bytes + sigma_bytes * draws.normal(),
                    Shape::Exponential { mean_bytes } => -mean_bytes * draws.unit().ln(),
                    Shape::LogNormal { mean_bytes, sigma_bytes } => {
                        let variance = (1.0 + (sigma_bytes / mean_bytes).powi(2)).ln();
                        (mean_bytes.ln() - variance / 2.0 + variance.sqrt() * draws.normal()).exp()
                    }
                };
                (value.round().max(0.0).min(f64::from(u32::MAX)) as u32).clamp(*bytes_min, *bytes_max)
            }
            Sizes::Listed(list) => {
                let at = (id % list.count()) as usize;
                (list.starts[at + 1] - list.starts[at]) as u32
            }
        }
    }

    /// Bytes of all fragments before `id`, where a fragment's size does not depend on a draw.
    pub fn before(&self, id: u64) -> Option<u128> {
        match self {
            Sizes::Fixed(bytes) => Some(u128::from(*bytes) * u128::from(id)),
            Sizes::Drawn { .. } => None,
            Sizes::Listed(list) => {
                let (turns, at) = (id / list.count(), (id % list.count()) as usize);
                let sum = *list.starts.last().unwrap_or(&0);
                Some(u128::from(turns) * u128::from(sum) + u128::from(list.starts[at]))
            }
        }
    }

    /// The largest that can come.
    pub fn bytes_max(&self) -> u32 {
        match self {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Drawn { bytes_max, .. } => *bytes_max,
            Sizes::Listed(list) => {
                list.starts.windows(2).map(|pair| (pair[1] - pair[0]) as u32).max().unwrap_or(0)
            }
        }
    }

    /// Whether all are alike, so that none needs to be announced.
    pub fn is_fixed(&self) -> bool {
        matches!(self, Sizes::Fixed(_))
    }
}

impl Listed {
    fn count(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// Sizes one a line, as plain bytes or with a unit; empty lines and what follows a `#` are left out. Errors: a line is no size
    /// or one above 64 MiB, there are none, there are more than 16 Mi.
    pub fn read(text: &str) -> Result<Listed, SizesError> {
        let mut starts = vec![0u64];
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let bytes = match line.parse::<u64>() {
                Ok(bytes) => bytes,
                Err(_) => {
                    size(line).map_err(|error| SizesError(format!("line {}: {error}", index + 1)))?.into()
                }
            };
            if bytes > u64::from(PAYLOAD_BYTES_MAX) {
                return refused(format!("line {}: a fragment has at most 64MiB", index + 1));
            }
            if starts.len() > LISTED_MAX {
                return refused(format!("the list has more than {LISTED_MAX} sizes"));
            }
            let sum = starts[starts.len() - 1];
            starts.push(sum + bytes);
        }
        if starts.len() == 1 {
            return refused("the list holds no size; write one a line, such as 20000 or 20kB");
        }
        Ok(Listed { starts: starts.into() })
    }
}

/// What a scenario or a command line says of fragment sizes.
///
/// ```text
/// 20kB                                          all alike
/// uniform:min=10kB:max=30kB                     every size between the two equally often
/// normal:20kB:sigma=5kB                         also min=, max= (default 0 and mean + 6 sigma)
/// exponential:20kB:max=100kB                    also min= (default 0); max is 10 × mean where it is not given
/// log-normal:20kB:sigma=10kB                    also min=, max= (default 0 and mean + 20 sigma)
/// list:sizes.txt                                from a file, one a line, in turn
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    Ready(Sizes),
    /// The list in this file; `Listed::read` takes its text.
    List(String),
}

const HOW: &str = "write 20kB, uniform:min=10kB:max=30kB, normal:20kB:sigma=5kB, exponential:20kB, log-normal:20kB:sigma=10kB \
    or list:FILE";

impl Spec {
    /// Errors: another form than those above, no size where one is needed, min above max, more than 64 MiB.
    pub fn parse(text: &str) -> Result<Spec, SizesError> {
        let Some((kind, rest)) = text.trim().split_once(':') else {
            return Ok(Spec::Ready(Sizes::Fixed(size(text)?)));
        };
        if kind == "list" {
            return match rest {
                "" => refused(format!("list: needs a file; {HOW}")),
                file => Ok(Spec::List(file.to_owned())),
            };
        }
        let given = Given::parse(rest)?;
        let (shape, bytes_max) = match kind {
            "uniform" => (Shape::Uniform, given.needs(given.max, "max")?),
            "normal" => {
                let (mean, sigma) = (given.needs(given.mean, "mean")?, given.needs(given.sigma, "sigma")?);
                let max = u64::from(mean) + 6 * u64::from(sigma);
                (Shape::Normal { mean_bytes: mean.into(), sigma_bytes: sigma.into() }, given.max_or(max))
            }
            "exponential" => {
                let mean = given.needs(given.mean, "mean")?;
                (Shape::Exponential { mean_bytes: mean.into() }, given.max_or(10 * u64::from(mean)))
            }
            "log-normal" => {
                let (mean, sigma) = (given.needs(given.mean, "mean")?, given.needs(given.sigma, "sigma")?);
                if mean == 0 {
                    return refused("log-normal: the mean must be above 0");
                }
                let max = u64::from(mean) + 20 * u64::from(sigma);
                (Shape::LogNormal { mean_bytes: mean.into(), sigma_bytes: sigma.into() }, given.max_or(max))
            }
            other => return refused(format!("{other:?} is no kind of sizes; {HOW}")),
        };
        let bytes_min = given.min.unwrap_or(0);
        if bytes_min > bytes_max {
            return refused(format!("{text:?}: min is above max"));
        }
        Ok(Spec::Ready(Sizes::Drawn { shape, bytes_min, bytes_max }))
    }
}

#[derive(Default)]
struct Given {
    mean: Option<u32>,
    sigma: Option<u32>,
    min: Option<u32>,
    max: Option<u32>,
}

impl Given {
    /// `20kB:sigma=5kB`: the mean may stand without its name.
    fn parse(text: &str) -> Result<Given, SizesError> {
        let mut given = Given::default();
        for part in text.split(':') {
            let (name, value) = part.split_once('=').unwrap_or(("mean", part));
            let place = match name.trim() {
                "mean" => &mut given.mean,
                "sigma" => &mut given.sigma,
                "min" => &mut given.min,
                "max" => &mut given.max,
                other => return refused(format!("{other:?} is not known; {HOW}")),
            };
            if place.replace(size(value)?).is_some() {
                return refused(format!("{} is given twice", name.trim()));
            }
        }
        Ok(given)
    }
    fn needs(&self, value: Option<u32>, name: &str) -> Result<u32, SizesError> {
        value.map_or_else(|| refused(format!("{name} is missing; {HOW}")), Ok)
    }
    fn max_or(&self, otherwise: u64) -> u32 {
        self.max.unwrap_or(otherwise.min(u64::from(PAYLOAD_BYTES_MAX)) as u32)
    }
}

fn size(text: &str) -> Result<u32, SizesError> {
    let bytes = Bytes::parse(text).map_err(|error| SizesError(error.problem))?.0;
    if bytes > u64::from(PAYLOAD_BYTES_MAX) {
        return refused(format!("{text:?}: a fragment has at most 64MiB"));
    }
    Ok(bytes as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Sizes {
        match Spec::parse(text) {
            Ok(Spec::Ready(sizes)) => sizes,
            other => panic!("{text}: {other:?}"),
        }
    }
    fn mean_and_sigma(sizes: &Sizes) -> (f64, f64) {
        let n = 20_000;
        let all: Vec<f64> = (0..n).map(|id| f64::from(sizes.bytes(7, id))).collect();
        let mean = all.iter().sum::<f64>() / n as f64;
        let variance = all.iter().map(|bytes| (bytes - mean).powi(2)).sum::<f64>() / n as f64;
        (mean, variance.sqrt())
    }

    // Spec: event-building.md#fragments-2
    #[test]
    fn drawn_sizes_have_the_mean_and_spread_that_were_asked_for_and_keep_their_bounds() {
        for (text, mean, sigma) in [
            ("20kB", 20_000.0, 0.0),
            ("uniform:min=10kB:max=30kB", 20_000.0, 5_773.5),
            ("normal:20kB:sigma=3kB", 20_000.0, 3_000.0),
            ("exponential:20kB", 20_000.0, 20_000.0),
            ("log-normal:20kB:sigma=10kB", 20_000.0, 10_000.0),
        ] {
            let sizes = parsed(text);
            let (found_mean, found_sigma) = mean_and_sigma(&sizes);
            // Five standard errors of 20,000 draws, more for the heavy tail.
            assert!((found_mean - mean).abs() <= sigma * 0.04, "{text}: mean {found_mean}");
            assert!((found_sigma - sigma).abs() <= sigma * 0.1, "{text}: sigma {found_sigma}");
        }
        let bounded = parsed("exponential:20kB:min=5kB:max=30kB");
        let all: Vec<u32> = (0..1000).map(|id| bounded.bytes(1, id)).collect();
        assert_eq!((all.iter().min(), all.iter().max()), (Some(&5_000), Some(&30_000)));
        assert_eq!(bounded.bytes_max(), 30_000);
    }

    #[test]
    fn what_is_no_size_is_refused_and_says_why() {
        for (text, part) in [
            ("20", "no unit"),
            ("gauss:20kB", "no kind of sizes"),
            ("normal:20kB", "sigma is missing"),
            ("normal:20kB:sigma=1kB:sigma=2kB", "twice"),
            ("uniform:min=3kB:max=2kB", "min is above max"),
            ("exponential:65MiB", "at most 64MiB"),
            ("exponential:20kB:top=3kB", "not known"),
            ("log-normal:0B:sigma=1B", "above 0"),
            ("list:", "needs a file"),
        ] {
            let error = Spec::parse(text).expect_err(text);
            assert!(error.0.contains(part), "{text}: {error}");
        }
        for (text, part) in [("", "no size"), ("7\nx\n", "line 2"), ("99999999999", "at most 64MiB")] {
            let error = Listed::read(text).expect_err(text);
            assert!(error.0.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_list_comes_in_turn_and_knows_what_came_before() {
        let sizes = Sizes::Listed(Listed::read("# three\n100\n\n2kB # two\n0\n").unwrap());
        let all: Vec<u32> = (0..5).map(|id| sizes.bytes(0, id)).collect();
        assert_eq!(all, [100, 2000, 0, 100, 2000]);
        assert_eq!(sizes.before(5), Some(2100 + 2100));
        assert_eq!(sizes.bytes_max(), 2000);
        assert_eq!(Spec::parse("list:a:b.txt"), Ok(Spec::List("a:b.txt".into())));
    }
}
