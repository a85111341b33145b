//! Lines that criteria drew through the points of a scaling curve: on the plot, in its caption, and in the table behind it.

use super::chart::{Frame, hue, path};
use crate::escape::{Html, T, put};
use crate::words::interval_text;
use weir_core::record::{FitResult, Summary};
use weir_core::units::human;

/// Lines drawn in one plot; a folder decides how many there are.
const FITS_MAX: usize = 16;
/// Marks of the axis stand below each other this far apart, in pixels, so that their words do not meet.
const ROW: f64 = 15.0;

/// A fit with the criterion that asked for it and the place of its curve in the plot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn<'a> {
    text: &'a str,
    fit: &'a FitResult,
    curve: usize,
}

/// Fits through `metric` against `parameter`, as many as are drawn, with the number of all. `curve_of` gives the place of the curve that
/// a point's id is on, `None` where it is on none that is drawn.
pub(super) fn of<'a>(
    summary: &'a Summary,
    metric: &str,
    parameter: &str,
    curve_of: impl Fn(&str) -> Option<usize>,
) -> (Vec<Drawn<'a>>, usize) {
    let mut all: Vec<Drawn<'a>> = Vec::new();
    for criterion in &summary.criteria {
        for fit in criterion.fits.iter().filter(|fit| fit.metric == metric && fit.x == parameter) {
            let curve = fit.points.first().and_then(|point| curve_of(&point.point));
            let Some(curve) = curve.filter(|_| (2..=3).contains(&fit.corners.len())) else { continue };
            all.push(Drawn { text: &criterion.text, fit, curve });
        }
    }
    let count = all.len();
    all.truncate(FITS_MAX);
    (all, count)
}

impl Drawn<'_> {
    pub fn heights(&self) -> impl Iterator<Item = f64> + '_ {
        self.fit.corners.iter().map(|[_, y]| *y)
    }

    fn knee(&self) -> Option<[f64; 2]> {
        match self.fit.corners.as_slice() {
            [_, knee, _] => Some(*knee),
            _ => None,
        }
    }

    /// `pairs`, or `size / B`: what a slope is multiplied by.
    fn factor(&self) -> String {
        match self.fit.x_unit.as_str() {
            "1" | "" => self.fit.x.clone(),
            unit => format!("{} / {unit}", self.fit.x),
        }
    }

    /// `y = 12 Mbit/s + 9.4 Mbit/s · pairs`; with a knee one for each side of it.
    fn equation(&self) -> String {
        let one = |[from, to]: [[f64; 2]; 2]| {
            let slope = (to[1] - from[1]) / (to[0] - from[0]);
            let (start, unit) = (from[1] - slope * from[0], self.fit.y_unit.as_str());
            let sign = if slope < 0.0 { '−' } else { '+' };
            format!("y = {} {sign} {} · {}", human(start, unit), human(slope.abs(), unit), self.factor())
        };
        match *self.fit.corners.as_slice() {
            [from, knee, to] => {
                format!("{} up to {}, then {}", one([from, knee]), self.at(knee[0]), one([knee, to]))
            }
            [from, to] => one([from, to]),
            _ => String::new(),
        }
    }

    /// `pairs = 10.1`
    fn at(&self, x: f64) -> String {
        format!("{} = {}", self.fit.x, human(x, &self.fit.x_unit))
    }

    fn value(&self) -> String {
        human(self.fit.value, self.unit())
    }

    fn interval(&self) -> Option<String> {
        interval_text(self.fit.ci95, self.fit.range, Some(self.unit()))
    }

    fn unit(&self) -> &str {
        if self.fit.kind.is_along() { &self.fit.x_unit } else { &self.fit.y_unit }
    }

    /// How far the point that lies worst is from the line; `None` where nothing is known of the points.
    fn miss(&self) -> Option<f64> {
        let off = |x: f64, y: f64| {
            let segment = self.fit.corners.windows(2).find(|ends| x <= ends[1][0]);
            let ends = segment.or_else(|| self.fit.corners.windows(2).last())?;
            let share = (x - ends[0][0]) / (ends[1][0] - ends[0][0]);
            Some((y - ends[0][1] - share * (ends[1][1] - ends[0][1])).abs())
        };
        self.fit.points.iter().filter_map(|point| off(point.x, point.y)).reduce(f64::max)
    }
}

/// The lines, broad and pale so that the measured curve in front of them stays seen, and each knee down to the axis with its interval.
/// To be put on the drawing before the curves.
pub(super) fn lines(frame: &Frame, fits: &[Drawn<'_>]) -> Html {
    let mut out = Html::new();
    let mut row = 0;
    for drawn in fits {
        let corners = drawn.fit.corners.iter().map(|[x, y]| (frame.px(*x), frame.py(*y)));
        put!(&mut out, "<path class=\"fit ", hue(drawn.curve), "\" d=\"", path(corners), "\"/>");
        let Some([x, y]) = drawn.knee() else { continue };
        let (px, py) = (frame.px(x), frame.py(y));
        put!(
            &mut out,
            "<path class=\"knee ",
            hue(drawn.curve),
            "\" d=\"M",
            px,
            " ",
            py,
            "V",
            frame.floor(),
            "\"/>"
        );
        if let Some([low, high]) = drawn.fit.ci95.or(drawn.fit.range) {
            let (low, high) = (frame.px(low), frame.px(high));
            put!(&mut out, "<path class=\"fit ", hue(drawn.curve), "\" d=\"M", low, " ", frame.floor());
            put!(&mut out, "H", high, "\"/>");
        }
        // Beside the mark, on the side that has room.
        let right = px < frame.width * 0.6;
        put!(&mut out, "<text class=soft text-anchor=", if right { "start" } else { "end" }, " x=");
        put!(
            &mut out,
            if right { px + 7.0 } else { px - 7.0 },
            " y=",
            frame.floor() - 8.0 - ROW * row as f64,
            ">"
        );
        put!(&mut out, "knee ", T(human(x, &drawn.fit.x_unit)), "</text>");
        row += 1;
    }
    out
}

/// Sentences for the caption, one for each line.
pub(super) fn caption(fits: &[Drawn<'_>], count: usize) -> Html {
    let mut out = Html::new();
    for drawn in fits {
        let fit = drawn.fit;
        put!(
            &mut out,
            " Broad line: ",
            T(drawn.fit.kind.name()),
            " of “",
            T(drawn.text),
            "”, least squares through the "
        );
        put!(&mut out, T(&fit.statistic), " of ", fit.points.len(), " points: ", T(drawn.equation()), "; ");
        put!(&mut out, T(drawn.fit.kind.name()), " ", T(drawn.value()));
        if let Some(interval) = drawn.interval() {
            put!(&mut out, " (", T(interval), ")");
        }
        put!(&mut out, ".");
    }
    if count > fits.len() {
        put!(&mut out, " ", count - fits.len(), " further lines are in summary.json.");
    }
    out
}

/// The same as a table; nothing without a fit.
pub(super) fn table(fits: &[Drawn<'_>]) -> Html {
    let mut out = Html::new();
    if fits.is_empty() {
        return out;
    }
    put!(
        &mut out,
        "<div class=wide><table class=tight><thead><tr><th>fit of<th>through<th class=n>from<th class=n>to<th>line"
    );
    put!(
        &mut out,
        "<th>asked<th class=n>value<th class=n>interval or range<th class=n>farthest point</thead><tbody>"
    );
    for drawn in fits {
        let fit = drawn.fit;
        let end =
            |corner: Option<&[f64; 2]>| corner.map_or_else(String::new, |[x, _]| human(*x, &fit.x_unit));
        put!(
            &mut out,
            "<tr><td>",
            T(drawn.text),
            "<td>",
            T(&fit.statistic),
            " of ",
            fit.points.len(),
            " points"
        );
        put!(
            &mut out,
            "<td class=n>",
            T(end(fit.corners.first())),
            "<td class=n>",
            T(end(fit.corners.last()))
        );
        put!(
            &mut out,
            "<td>",
            T(drawn.equation()),
            "<td>",
            drawn.fit.kind.name(),
            "<td class=n>",
            T(drawn.value())
        );
        put!(&mut out, "<td class=n>", T(drawn.interval().unwrap_or_else(|| "–".to_owned())));
        let miss = drawn.miss().map_or_else(|| "–".to_owned(), |miss| human(miss, &fit.y_unit));
        put!(&mut out, "<td class=n>", T(miss));
    }
    put!(&mut out, "</tbody></table></div>");
    out
}

#[cfg(test)]
pub(super) mod tests {
    use crate::{Folder, html, json, sample};
    use weir_core::record::{FitPoint, Summary};
    use weir_core::regression::FitKind;

    /// The page of the sample that sweeps over streams, its summary changed.
    pub(in crate::html) fn page(change: impl FnOnce(&mut Summary)) -> String {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        let mut summary = sample::failing_summary();
        sample::write(&run, &summary, 400);
        change(&mut summary);
        std::fs::write(run.join("summary.json"), json(&summary)).unwrap();
        html(&Folder::read(&run).unwrap())
    }

    /// The first figure of the section on scaling.
    pub(in crate::html) fn scaling(page: &str) -> &str {
        let from = page.find("<h2>Scaling</h2>").expect("a section on scaling");
        let end = page[from..].find("</figure>").expect("a figure");
        &page[from..from + end]
    }

    #[test]
    fn what_a_criterion_fitted_is_on_the_plot_in_its_caption_and_in_its_table() {
        let page = page(|_| ());
        let figure = scaling(&page);
        let (drawing, words) = figure.split_once("</svg>").unwrap();
        // Two lines, and the interval of the knee on the axis.
        assert_eq!(drawing.matches("class=\"fit c0\"").count(), 3, "{drawing}");
        assert!(drawing.contains("class=\"knee c0\"") && drawing.contains(">knee 5.342</text>"), "{drawing}");
        let (caption, table) = words.split_once("</figcaption>").unwrap();
        let slope = "y = 146.1 Mbit/s + 138.2 Mbit/s · streams";
        let knee = "y = 146.1 Mbit/s + 138.2 Mbit/s · streams up to streams = 5.342, then y = 871 Mbit/s + 2.471 Mbit/s · streams";
        for expected in
            [slope, knee, "132.6 Mbit/s to 143.7 Mbit/s", "least squares through the mean of 6 points"]
        {
            assert!(caption.contains(expected), "no {expected} in {caption}");
        }
        for expected in [
            slope,
            knee,
            "<td>slope<td class=n>138.2 Mbit/s",
            "<td>knee<td class=n>5.342<td class=n>95 %: 5.128 to 5.556",
        ] {
            assert!(table.contains(expected), "no {expected} in {table}");
        }
        assert!(!figure.contains("logarithmic"), "a line that was fitted is drawn straight");
    }

    #[test]
    fn without_a_fit_as_in_folders_of_the_first_version_nothing_of_it_is_drawn() {
        let page = page(|summary| summary.criteria.iter_mut().for_each(|it| it.fits.clear()));
        let figure = scaling(&page);
        assert!(
            figure.contains("Horizontal axis logarithmic") && !figure.contains("class=\"fit"),
            "{figure}"
        );
        assert!(!figure.contains("fit of") && !figure.contains("Broad line"), "{figure}");
    }

    #[test]
    fn a_fit_of_a_link_is_drawn_through_that_links_metric() {
        let name = "port.load_ratio@link.wan.forward";
        let page = page(|summary| {
            let many = summary.points.iter_mut().filter(|point| point.step == "many");
            for point in many {
                let measured = point.metrics.values().next().unwrap().clone();
                point.metrics.insert(name.to_owned(), measured);
            }
            let fitted = summary.criteria.iter_mut().find(|it| !it.fits.is_empty()).unwrap();
            fitted.metric = Some("port.load_ratio".to_owned());
            fitted.fits[0].metric = name.to_owned();
        });
        let at = page.find(&format!("aria-label=\"{name} against streams, many\"")).expect("its plot");
        assert!(page[at..].split("</svg>").next().unwrap().contains("class=\"fit c0\""));
    }

    #[test]
    fn a_folder_that_says_nonsense_of_a_fit_gives_a_page_all_the_same() {
        let spoil: [fn(&mut weir_core::record::FitResult); 7] = [
            |fit| fit.corners.clear(),
            |fit| fit.corners = vec![[0.0, 0.0]; 500],
            |fit| fit.corners = vec![[3.0, 1.0]; 3],
            |fit| fit.corners = vec![[-1e308, 1e308], [1e308, -1e308]],
            |fit| fit.points.clear(),
            |fit| fit.points = vec![FitPoint { point: "nowhere".to_owned(), x: 1e308, y: -1e308 }],
            |fit| {
                fit.kind = FitKind::Knee;
                fit.value = 1e308;
                fit.ci95 = Some([1e308, -1e308]);
                fit.x_unit = "<script>".to_owned();
                fit.statistic = "<script>".to_owned();
            },
        ];
        for spoil in spoil {
            let page = page(|summary| {
                let fits = summary.criteria.iter_mut().flat_map(|it| &mut it.fits);
                fits.for_each(spoil);
                summary.criteria.iter_mut().for_each(|it| it.text = "<script>".to_owned());
            });
            assert!(page.ends_with("</html>\n") && !page.contains("<script") && !page.contains("NaN"));
        }
        let many = page(|summary| {
            let fits = &mut summary.criteria.last_mut().unwrap().fits;
            *fits = vec![fits[0].clone(); 100];
        });
        assert!(scaling(&many).contains("further lines are in summary.json"));
    }
}
