//! A lab of this process's own, built by the same code as that of `weir run`, with the fabric's counters at hand.

use super::capture::{self, Sighting};
use super::pair::{End, Pair};
use std::path::Path;
use std::time::Duration;
use weir_core::fabric_page::{HEADER_WORDS, LATENESS_BUCKETS, header, lateness_quantile_ns, link_start};
use weir_core::scenario::{self, Language, Overrides};
use weir_core::schedule::Change;
use weir_core::topology::{DirectedLink, Topology};
use weir_lab::capture::{Epoch, Request};
use weir_lab::{Lab, Options};
use weir_sys::process::Affinity;

/// While nothing moves the page is at most 0.1 s old.
const PAGE_AGE: Duration = Duration::from_millis(120);

pub struct TestLab {
    lab: Lab,
    pub topology: Topology,
    pub links: Vec<DirectedLink>,
}

/// While this lives the thread that made it, and those that it begins, keep off the fabric's CPU.
pub struct Apart(Affinity);

impl Drop for Apart {
    fn drop(&mut self) {
        if let Err(problem) = self.0.apply(0) {
            eprintln!("xtask: {problem}");
        }
    }
}

/// All words of the fabric's page at one time.
pub struct Counters(Vec<u64>);

impl Counters {
    pub fn link(&self, link: usize, word: usize) -> u64 {
        self.0[link_start(link) + word]
    }
    /// When the fabric wrote them, in ns of the experiment's clock.
    pub fn at_ns(&self) -> u64 {
        self.0[header::HEARTBEAT_NS]
    }
    pub fn cpu_ns(&self) -> u64 {
        self.0[header::CPU_NS]
    }
    fn lateness(&self) -> &[u64] {
        &self.0[HEADER_WORDS..HEADER_WORDS + LATENESS_BUCKETS]
    }
    /// The lateness in seconds below which this share of the deliveries since `before` stayed; `None` without any.
    pub fn lateness_seconds(&self, before: &Counters, share: f64) -> Option<f64> {
        lateness_quantile_ns(before.lateness(), self.lateness(), share).map(|ns| ns / 1e9)
    }
}

impl TestLab {
    /// `text` is a scenario file of which `[lab]` counts; `weir` the program whose fabric is measured.
    pub fn start(weir: &Path, text: &str, seed: u64) -> Result<TestLab, String> {
        TestLab::start_changed(weir, text, seed, |_| ())
    }

    /// The same, with a change of the topology that the text says.
    pub fn start_changed(
        weir: &Path,
        text: &str,
        seed: u64,
        change: impl FnOnce(&mut Topology),
    ) -> Result<TestLab, String> {
        let plan = scenario::load(text, "lab", &Overrides::default(), Language::NONE)
            .map_err(|problems| format!("{problems}\n{text}"))?;
        let configuration = plan.configurations.into_iter().next().ok_or("the text describes no lab")?;
        let mut topology = configuration.topology;
        change(&mut topology);
        let options = Options { seed, exe: weir.to_owned() };
        let lab = Lab::start(&topology, &options).map_err(|problem| problem.to_string())?;
        Ok(TestLab { lab, links: topology.directed_links(), topology })
    }

    /// Gives the fabric the first CPU and the calling thread the others. `None` where there is only one.
    ///
    /// A probe never sleeps. A fabric that is woken on the probe's CPU, which the scheduler may prefer to one that is idle, waits
    /// for turns that no program of a user's, which does sleep, would have made it wait for.
    pub fn apart(&self) -> Result<Option<Apart>, String> {
        let failed = |problem| format!("giving the lab a CPU of its own: {problem}");
        let all = Affinity::current().map_err(failed)?;
        let Some((first, others)) = all.split() else { return Ok(None) };
        first.apply(self.lab.fabric_pid()).map_err(failed)?;
        others.apply(0).map_err(failed)?;
        Ok(Some(Apart(all)))
    }

    pub fn pair(&self, near: &str, far: &str) -> Result<Pair, String> {
        let end = |name: &str| {
            let host = self.topology.host_index(name).ok_or_else(|| format!("no host {name}"))?;
            let namespace = self.lab.namespace(host).try_clone_to_owned();
            let namespace = namespace.map_err(|problem| format!("host {name}: {problem}"))?;
            Ok::<End, String>(End { namespace, address: Topology::ipv4(host) })
        };
        Ok(Pair { near: end(near)?, far: end(far)? })
    }

    /// By its name as in `topology::DirectedLink`.
    pub fn link(&self, name: &str) -> Result<usize, String> {
        self.links.iter().position(|link| link.name == name).ok_or_else(|| format!("no link {name}"))
    }

    /// The directed links that packets from one host to another pass.
    pub fn path(&self, near: &str, far: &str) -> Result<Vec<&DirectedLink>, String> {
        let host = |name: &str| self.topology.host_index(name).ok_or_else(|| format!("no host {name}"));
        let path = self.topology.path(host(near)?, host(far)?).ok_or("no path")?;
        Ok(path.into_iter().map(|link| &self.links[link]).collect())
    }

    /// The counters once the page has surely been written after what happened before the call.
    pub fn counters(&self) -> Counters {
        std::thread::sleep(PAGE_AGE);
        self.counters_now()
    }

    /// The counters as they stand: up to 1 ms old while packets move.
    pub fn counters_now(&self) -> Counters {
        let page = self.lab.page();
        Counters(page.copy(0, page.words()))
    }

    /// Does `work` while the links of these names are captured; what was seen is in the order of the model's events.
    pub fn captured<T>(
        &mut self,
        links: &[String],
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<(T, Vec<Sighting>), String> {
        let folder = tempfile::tempdir().map_err(|problem| format!("a folder for a capture: {problem}"))?;
        let file = folder.path().join("links.pcapng");
        let request = Request {
            ports: links.to_vec(),
            snap_bytes: None,
            count: None,
            duration_ns: None,
            epoch: Epoch::At(0),
        };
        let number = self.lab.capture(&request, &file).map_err(|problem| problem.to_string())?;
        let done = work();
        let outcome = self.lab.end_capture(number).map_err(|problem| problem.to_string())?;
        if outcome.lost > 0 || outcome.error.is_some() {
            return Err(format!("a capture is not whole: {outcome:?}"));
        }
        Ok((done?, capture::read(&file, links)?))
    }

    pub fn schedule(&mut self, changes: &[Change]) -> Result<(), String> {
        self.lab.schedule(changes).map_err(|problem| problem.to_string())
    }
}
