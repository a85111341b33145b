//! Counters of the fabric's directed links, read from its shared page.

use weir_core::Instant;
use weir_core::fabric_page::{self, LINK_SERIES, LinkSeries, header};
use weir_core::record::Series;
use weir_seams::sampler::{Sampler, SeriesView};

/// Reads one word of the page.
pub type ReadWord = Box<dyn Fn(usize) -> u64 + Send>;

pub struct PortSampler {
    read: ReadWord,
    names: Vec<String>,
    t_ns: Vec<i64>,
    /// Of the fabric's thread, seconds.
    looked: Vec<f64>,
    /// `[link][kept word][sample]`
    values: Vec<Vec<Vec<f64>>>,
}

impl PortSampler {
    /// `names`: the directed links in the page's order.
    pub fn new(read: ReadWord, names: Vec<String>) -> Self {
        let values = vec![vec![Vec::new(); LINK_SERIES.len()]; names.len()];
        PortSampler { read, names, t_ns: Vec::new(), looked: Vec::new(), values }
    }
}

impl Sampler for PortSampler {
    fn sample(&mut self, now: Instant) {
        self.t_ns.push(i64::try_from(now.as_ns()).unwrap_or(i64::MAX));
        self.looked.push((self.read)(header::LOOKED_NS) as f64 / 1e9);
        for (index, words) in self.values.iter_mut().enumerate() {
            let start = fabric_page::link_start(index);
            for (kept, values) in LINK_SERIES.iter().zip(words) {
                let value = (self.read)(start + kept.word);
                if kept.is_rare && values.is_empty() {
                    if value == 0 {
                        continue;
                    }
                    values.resize(self.t_ns.len() - 1, 0.0);
                }
                values.push(value as f64);
            }
        }
    }

    fn show(&self, to: &mut dyn FnMut(SeriesView<'_>)) {
        let t_ns = &self.t_ns[..];
        for (entity, words) in self.names.iter().zip(&self.values) {
            for (kept, value) in LINK_SERIES.iter().zip(words) {
                let LinkSeries { name, unit, is_cumulative: cumulative, .. } = *kept;
                if !kept.is_rare || !value.is_empty() {
                    to(SeriesView { entity, name, unit, cumulative, t_ns, value });
                }
            }
        }
        to(SeriesView {
            entity: "process.fabric",
            name: "fabric.looking_seconds",
            unit: "s",
            cumulative: true,
            t_ns,
            value: &self.looked,
        });
    }

    fn take(&mut self) -> Vec<Series> {
        let mut all = Vec::with_capacity(self.names.len() * LINK_SERIES.len() + 1);
        self.show(&mut |series| all.push(series.to_owned()));
        self.t_ns.clear();
        self.looked.clear();
        self.values.iter_mut().flatten().for_each(Vec::clear);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::fabric_page::link;

    #[test]
    fn each_links_words_end_in_that_links_series() {
        let read: ReadWord = Box::new(|word| word as u64);
        let mut sampler = PortSampler::new(read, vec!["a".to_owned(), "b".to_owned()]);
        sampler.sample(Instant::from_ns(5));
        let series = sampler.take();
        let of_b = series.iter().find(|it| it.entity == "b" && it.name == "port.queue_bytes").unwrap();
        assert_eq!(of_b.value, [(fabric_page::link_start(1) + link::QUEUE_BYTES) as f64]);
        assert_eq!(of_b.t_ns, [5]);
        let looking = series.iter().find(|it| it.name == "fabric.looking_seconds").unwrap();
        assert_eq!(looking.value, [header::LOOKED_NS as f64 / 1e9]);
        sampler.sample(Instant::from_ns(6));
        assert_eq!(sampler.take()[0].t_ns, [6], "what was taken does not come again");
    }

    #[test]
    fn a_rare_count_has_a_series_from_the_first_sample_on_once_it_moves_and_none_before() {
        let moved = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let seen = moved.clone();
        let read: ReadWord = Box::new(move |word| {
            let rare = word == fabric_page::link_start(1) + link::REORDERED;
            if rare { seen.load(std::sync::atomic::Ordering::Relaxed) } else { 0 }
        });
        let mut sampler = PortSampler::new(read, vec!["a".to_owned(), "b".to_owned()]);
        for (t_ns, value) in [(1, 0), (2, 0), (3, 7), (4, 7)] {
            moved.store(value, std::sync::atomic::Ordering::Relaxed);
            sampler.sample(Instant::from_ns(t_ns));
        }
        let series = sampler.take();
        let always = LINK_SERIES.iter().filter(|kept| !kept.is_rare).count();
        assert_eq!(series.len(), 2 * always + 1 + 1);
        let rare = series.iter().find(|it| it.name == "port.reordered_packets").unwrap();
        assert_eq!((rare.entity.as_str(), rare.value.as_slice()), ("b", [0.0, 0.0, 7.0, 7.0].as_slice()));
        assert_eq!(rare.t_ns, [1, 2, 3, 4]);
    }
}
