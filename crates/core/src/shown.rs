//! How a capability wants its series and its counts shown. Report and terminal know no name of them: what is declared travels with
//! the results in `shown.json`, and what nobody declared is shown by its own name, behind a fold.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

type Text = Cow<'static, str>;
type List<T> = Cow<'static, [T]>;

/// Where a series has its plot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// In the open, first, with the sum of its entities: it is what the load moves. A point that has none shows its other series
    /// behind the fold, since its picture is a distribution.
    Lead(u8),
    /// In the open, after those that lead, lowest first.
    Open(u8),
    #[default]
    Folded,
    /// Another picture has it.
    Elsewhere,
}

/// How one series of samples is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeriesShown {
    /// Name of the series, such as `port.queue_bytes`.
    pub name: Text,
    /// What people call it.
    pub spoken: Text,
    pub place: Place,
    /// One and many of those whose series it is, for a caption: `builder`, `builders`. Empty: flows.
    pub of: (Text, Text),
    /// Drawn with the size of the queue of the link it is of, and only where it held a share of what the fullest held.
    pub is_queue: bool,
    /// Entity whose series is the sum of the others, which are drawn.
    pub sum: Text,
}

impl SeriesShown {
    pub const fn new(name: &'static str, spoken: &'static str, place: Place) -> SeriesShown {
        const EMPTY: Text = Cow::Borrowed("");
        let (name, spoken) = (Cow::Borrowed(name), Cow::Borrowed(spoken));
        SeriesShown { name, spoken, place, of: (EMPTY, EMPTY), is_queue: false, sum: EMPTY }
    }

    pub const fn queue(mut self) -> SeriesShown {
        self.is_queue = true;
        self
    }
}

/// Whether an end is one that was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    Good,
    Part,
    Bad,
    /// Neither ended well nor badly.
    Open,
}

/// Counts that account for a whole, drawn as a flow: the whole, how each part of it ended, and who has the good ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Metric of the whole, and what it is called.
    pub whole: (Text, Text),
    /// Metric, what it is called, and how good an end it is. The first one's flow goes on to `holders`.
    pub ends: List<(Text, Text, End)>,
    /// Of one end, by its metric, the metric whose entities are reasons, and the prefix of those entities.
    pub reasons: Option<(Text, Text, Text)>,
    /// Metric by entity of those that have the parts of the first end; one and many of them.
    pub holders: (Text, Text, Text),
    pub caption: Text,
}

/// One part of a sentence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    Text(Text),
    /// A metric of the trial, and its unit.
    Figure(Text, Text),
    /// A metric of the trial that is a ratio, in percent.
    Percent(Text),
    /// How many dots there are; one and many of them.
    Dots(Text, Text),
}

/// Short tests as dots over what the path did meanwhile as a line, and what each of the two says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TwoViews {
    /// The series of the dots.
    pub dots: Text,
    /// Metric of the rate that the path has undisturbed, and the share of it that counts as good.
    pub reference: (Text, f64),
    /// What is said below of the dots and of the line: name of the view, and sentences, each left out where a metric of it is missing.
    pub of_dots: (Text, List<List<Part>>),
    pub of_line: (Text, List<List<Part>>),
}

/// What one capability shows, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shown {
    pub series: List<SeriesShown>,
    pub ledgers: List<Ledger>,
    pub views: List<TwoViews>,
}

impl Shown {
    pub const NOTHING: &'static Shown =
        &Shown { series: Cow::Borrowed(&[]), ledgers: Cow::Borrowed(&[]), views: Cow::Borrowed(&[]) };

    /// Of one name the first stays.
    pub fn joined<'a>(all: impl IntoIterator<Item = &'a Shown>) -> Shown {
        let mut joined = Shown::default();
        for one in all {
            for series in one.series.iter() {
                if joined.series(&series.name).is_none() {
                    joined.series.to_mut().push(series.clone());
                }
            }
            for ledger in one.ledgers.iter().filter(|it| !joined.ledgers.contains(it)).collect::<Vec<_>>() {
                joined.ledgers.to_mut().push(ledger.clone());
            }
            for views in one.views.iter().filter(|it| !joined.views.contains(it)).collect::<Vec<_>>() {
                joined.views.to_mut().push(views.clone());
            }
        }
        joined
    }

    pub fn series(&self, name: &str) -> Option<&SeriesShown> {
        self.series.iter().find(|series| series.name == name)
    }
}
