//! Lines through points: the slope of one, where it is at nought, and where two of them meet.

use serde::{Deserialize, Serialize};

/// What is judged of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FitKind {
    /// Of the least-squares line, in the metric's unit for each base unit of the parameter.
    Slope,
    /// Where two lines that meet fit better than one; in the parameter's base unit.
    Knee,
    /// Where the least-squares line is at a parameter of nought, in the metric's unit: what is there without any load.
    Intercept,
}

impl FitKind {
    /// In the order of `NAMES`.
    const ALL: [FitKind; 3] = [FitKind::Slope, FitKind::Knee, FitKind::Intercept];
    /// As scenarios and results spell them.
    pub const NAMES: &[&str] = &["slope", "knee", "intercept"];

    pub fn parse(name: &str) -> Option<FitKind> {
        FitKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub fn name(self) -> &'static str {
        FitKind::NAMES[self as usize]
    }

    /// How many different values of the parameter it takes.
    pub fn values_min(self) -> usize {
        if self == FitKind::Knee { 4 } else { 2 }
    }

    /// Whether it is a value of the parameter, and not of the metric.
    pub fn is_along(self) -> bool {
        self == FitKind::Knee
    }

    /// Draws it through points, each `(x, y)`; `None` where there is none.
    pub fn draw(self, points: &[(f64, f64)]) -> Option<Fitted> {
        match self {
            FitKind::Slope => slope(points),
            FitKind::Knee => knee(points),
            FitKind::Intercept => intercept(points),
        }
    }
}

/// A least-squares line: its value at nought, its slope, and what is left of the squares.
#[derive(Clone, Copy, Debug)]
struct Line {
    at_zero: f64,
    slope: f64,
    residual: f64,
}

impl Line {
    /// Its ends above the first and the last of the points.
    fn over(&self, points: &[(f64, f64)]) -> Vec<[f64; 2]> {
        let least = points.iter().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let most = points.iter().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
        [least, most].map(|x| [x, self.at_zero + self.slope * x]).to_vec()
    }
}

fn line(points: &[(f64, f64)]) -> Option<Line> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    if points.len() < 2 || spread <= 0.0 {
        return None;
    }
    let slope = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / spread;
    let at_zero = mean_y - slope * mean_x;
    let residual = points.iter().map(|(x, y)| (y - at_zero - slope * x).powi(2)).sum();
    Some(Line { at_zero, slope, residual })
}

/// What least squares drew through points.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The slope, the `x` of the knee, or the `y` at nought.
    pub value: f64,
    /// Where the drawn line begins, bends and ends, each `[x, y]` in order of `x`: two, or three with the knee in the middle.
    pub corners: Vec<[f64; 2]>,
}

impl Fitted {
    /// `None` where rounding or overflow left something that is no number.
    fn finite(self) -> Option<Fitted> {
        let finite = self.value.is_finite() && self.corners.iter().flatten().all(|number| number.is_finite());
        finite.then_some(self)
    }
}

/// The ordinary least-squares line through `points`, each `(x, y)`; `None` unless two of them differ in `x`.
pub fn slope(points: &[(f64, f64)]) -> Option<Fitted> {
    let line = line(points)?;
    Fitted { value: line.slope, corners: line.over(points) }.finite()
}

/// Where that line is at an `x` of nought.
fn intercept(points: &[(f64, f64)]) -> Option<Fitted> {
    let line = line(points)?;
    Fitted { value: line.at_zero, corners: line.over(points) }.finite()
}

/// Two lines that meet.
#[derive(Clone, Copy, Debug)]
struct Bent {
    residual: f64,
    /// Where they meet.
    at: f64,
    level: f64,
    before: f64,
    after: f64,
}

/// The `x` at which the slope changes: of all pairs of straight lines that meet, the pair with the least sum of squares, the
/// first `k` points on one and the others on the other; where their free lines do not meet between point `k` and `k + 1`, they
/// are made to meet at one of these two.
///
/// - Shape: points in any order. `None` for fewer than four different `x`, or where two lines fit no better than one.
/// - Source: Hudson, Journal of the American Statistical Association 61(316), 1966, for the joined two-line model.
fn knee(points: &[(f64, f64)]) -> Option<Fitted> {
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut different: Vec<f64> = points.iter().map(|point| point.0).collect();
    different.dedup();
    if different.len() < 4 || points.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
        return None;
    }
    let whole = line(&points)?;
    let mut best: Option<Bent> = None;
    let mut consider = |bent: Bent| {
        if best.is_none_or(|best| bent.residual < best.residual) {
            best = Some(bent);
        }
    };
    for pair in different.windows(2).skip(1).take(different.len() - 3) {
        let split = points.partition_point(|point| point.0 <= pair[0]);
        let (Some(left), Some(right)) = (line(&points[..split]), line(&points[split..])) else { continue };
        let meet = (right.at_zero - left.at_zero) / (left.slope - right.slope);
        if meet.is_finite() && (pair[0]..=pair[1]).contains(&meet) {
            consider(Bent {
                residual: left.residual + right.residual,
                at: meet,
                level: left.at_zero + left.slope * meet,
                before: left.slope,
                after: right.slope,
            });
        }
    }
    for at in &different[1..different.len() - 1] {
        if let Some(bent) = joined_at(&points, *at) {
            consider(bent);
        }
    }
    // What is left of one line only by rounding is no reason for two.
    let scale: f64 = points.iter().map(|(_, y)| y * y).sum();
    let bent = best?;
    if !(whole.residual > scale * 1e-18 && bent.residual < whole.residual * (1.0 - 1e-9)) {
        return None;
    }
    let (first, last) = (different.first()?, different.last()?);
    let corners = vec![
        [*first, bent.level + bent.before * (first - bent.at)],
        [bent.at, bent.level],
        [*last, bent.level + bent.after * (last - bent.at)],
    ];
    Fitted { value: bent.at, corners }.finite()
}

/// The best two lines that meet at `knot`: least squares over 1, x and max(0, x − knot).
fn joined_at(points: &[(f64, f64)], knot: f64) -> Option<Bent> {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
    let mean_h = points.iter().map(|point| (point.0 - knot).max(0.0)).sum::<f64>() / count;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
    let (mut xx, mut xh, mut hh, mut xy, mut hy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (x, y) in points {
        let (h, x, y) = ((x - knot).max(0.0) - mean_h, x - mean_x, y - mean_y);
        (xx, xh, hh, xy, hy) = (xx + x * x, xh + x * h, hh + h * h, xy + x * y, hy + h * y);
    }
    let determinant = xx * hh - xh * xh;
    if determinant <= xx * hh * 1e-12 {
        return None;
    }
    let (slope, change) = ((xy * hh - hy * xh) / determinant, (hy * xx - xy * xh) / determinant);
    let left =
        |(x, y): &(f64, f64)| (y - mean_y) - slope * (x - mean_x) - change * ((x - knot).max(0.0) - mean_h);
    Some(Bent {
        residual: points.iter().map(|point| left(point).powi(2)).sum(),
        at: knot,
        level: mean_y + slope * (knot - mean_x) - change * mean_h,
        before: slope,
        after: slope + change,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bent(xs: impl Iterator<Item = u32>, knee: f64, before: f64, after: f64) -> Vec<(f64, f64)> {
        xs.map(f64::from).map(|x| (x, before * x.min(knee) + after * (x - knee).max(0.0))).collect()
    }

    #[test]
    fn the_slope_of_a_line_is_found_and_a_single_x_has_none() {
        let exact = Fitted { value: 2.0, corners: vec![[1.0, 3.0], [4.0, 9.0]] };
        assert_eq!(slope(&[(2.0, 5.0), (1.0, 3.0), (4.0, 9.0)]), Some(exact));
        let noisy = slope(&[(1.0, 1.1), (2.0, 1.9), (3.0, 3.1), (4.0, 3.9)]).unwrap();
        assert!((noisy.value - 0.96).abs() < 1e-12, "{noisy:?}");
        assert_eq!(slope(&[(1.0, 3.0), (1.0, 5.0)]), None);
        assert_eq!(slope(&[]), None);
    }

    // Spec: judging.md#fit-4
    #[test]
    fn the_intercept_is_the_lines_height_at_nought_and_it_is_drawn_over_the_points() {
        let exact = Fitted { value: 1.0, corners: vec![[1.0, 3.0], [4.0, 9.0]] };
        let points = [(2.0, 5.0), (1.0, 3.0), (4.0, 9.0)];
        assert_eq!(FitKind::Intercept.draw(&points), Some(exact));
        assert_eq!(FitKind::Intercept.draw(&points[..1]), None);
        assert_eq!(FitKind::ALL.map(|kind| FitKind::parse(kind.name())), FitKind::ALL.map(Some));
    }

    // Spec: judging.md#fit-2
    #[test]
    fn the_knee_is_where_the_slope_changes_on_a_point_or_between_two() {
        let knee_of = |points: &[(f64, f64)]| (knee(points).unwrap().value * 1e6).round() / 1e6;
        assert_eq!(knee_of(&bent(1..=16, 10.0, 0.099, 0.0)), 10.0);
        assert_eq!(knee_of(&bent(1..=16, 10.4, 0.099, 0.01)), 10.4);
        assert_eq!(knee_of(&bent([1, 4, 9, 10, 12, 16].into_iter(), 10.0, 0.099, 0.0)), 10.0);
        assert_eq!(knee_of(&[(0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (3.0, -1.0)]), 1.0);
        let mut shuffled = bent(1..=16, 6.0, 1.0, 3.0);
        shuffled.reverse();
        assert_eq!(knee_of(&shuffled), 6.0);
    }

    #[test]
    fn the_line_drawn_bends_at_the_knee_and_runs_through_points_that_lie_on_it() {
        for (at, before, after) in [(10.0, 0.099, 0.0), (10.4, 0.099, 0.01), (3.0, -2.0, 5.0)] {
            let points = bent(1..=16, at, before, after);
            let corners: Vec<[f64; 2]> = knee(&points).unwrap().corners;
            let expected = [[1.0, points[0].1], [at, before * at], [16.0, points[15].1]];
            for (corner, expected) in corners.iter().flatten().zip(expected.iter().flatten()) {
                assert!((corner - expected).abs() < 1e-9, "{corners:?} instead of {expected:?}");
            }
        }
    }

    #[test]
    fn a_straight_line_and_too_few_points_have_no_knee() {
        assert_eq!(knee(&bent(1..=16, 20.0, 0.5, 0.0)), None);
        assert_eq!(knee(&[(1.0, 1.0), (2.0, 1.0), (3.0, 5.0)]), None);
        assert_eq!(knee(&[(1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (3.0, 5.0)]), None);
    }

    proptest! {
        #[test]
        fn a_knee_lies_within_its_points(ys in prop::collection::vec(-1e3..1e3f64, 4..20)) {
            let points: Vec<(f64, f64)> = ys.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect();
            if let Some(Fitted { value: at, corners }) = knee(&points) {
                prop_assert!(at >= 0.0 && at <= (ys.len() - 1) as f64);
                prop_assert!(corners.len() == 3 && corners[1][0] == at);
            }
            prop_assert!(slope(&points).is_some());
        }
    }
}
