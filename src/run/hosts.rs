//! Real hosts: how their agents are started, and which of their addresses carry the load.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use weir_agent::Fleet;
use weir_agent::launcher::{LocalLauncher, SshLauncher};
use weir_agent::message::HostReport;
use weir_core::hosts::PortRange;
use weir_core::scenario::{Plan, RealHost};
use weir_seams::launcher::{LaunchError, Launched, Launcher};
use weir_transport::address::at_and_on;

/// Starts each host's agent through the launcher that the scenario names for it.
pub struct HostsLauncher {
    ssh: SshLauncher,
    local: LocalLauncher,
    here: Vec<String>,
}

impl HostsLauncher {
    /// `ssh_configuration`: instead of the user's own.
    pub fn new(hosts: &[RealHost], program: PathBuf, ssh_configuration: Option<PathBuf>) -> HostsLauncher {
        let mut ssh = SshLauncher::new(hosts, program.clone());
        ssh.configuration = ssh_configuration;
        let here = hosts.iter().filter(|host| host.launcher == "local").map(|host| host.name.clone());
        let local = LocalLauncher { program, arguments: vec!["agent".to_owned()] };
        HostsLauncher { ssh, local, here: here.collect() }
    }

    fn of(&self, host: &str) -> &dyn Launcher {
        if self.here.iter().any(|name| name == host) { &self.local } else { &self.ssh }
    }
}

impl Launcher for HostsLauncher {
    fn launch(&self, host: &str) -> Result<Launched, LaunchError> {
        self.of(host).launch(host)
    }
    fn shares_clock(&self, host: &str) -> bool {
        self.of(host).shares_clock(host)
    }
}

/// What a run on real hosts cannot see, if this is one.
pub fn warning(plan: &Plan) -> Option<String> {
    let mut hosts = plan.configurations.iter().filter_map(|configuration| configuration.hosts.as_ref());
    // A host alone has no links that anything was asked of.
    hosts.any(|hosts| hosts.len() > 1).then(|| {
        "real hosts: no counters of the links and queues between them; limiting factors are named from what TCP and the hosts \
         say"
            .to_owned()
    })
}

/// Where workloads of each host may listen, for those that say so.
pub fn data_ports(hosts: &[RealHost]) -> BTreeMap<String, PortRange> {
    let range = |host: &RealHost| {
        let [first, last] = host.data_ports?;
        Some((host.name.clone(), PortRange::new(first, last)?))
    };
    hosts.iter().filter_map(range).collect()
}

/// As `address_of`, from what the host's agent said. A host without an agent has no address that matters: its steps fail.
pub fn data_address(host: &RealHost, fleet: &Fleet, family: u64) -> Result<IpAddr, String> {
    match fleet.report(&host.name) {
        Some(report) => address_of(host, report, family),
        None => Ok(Ipv4Addr::UNSPECIFIED.into()),
    }
}

/// The address that carries a host's load: of `data_interface`, else the one at which the host was reached, of the
/// family that the step wants (4 or 6).
///
/// Errors: a sentence for people.
fn address_of(host: &RealHost, report: &HostReport, family: u64) -> Result<IpAddr, String> {
    let name = &host.name;
    let right = |address: &IpAddr| address.is_ipv6() == (family == 6);
    // The zone of a written address is this machine's, which is the host itself only where it is reached without a login.
    let (written, zone) = at_and_on(&host.address);
    // A login says where it arrived; a host that is reached without one is where the scenario says.
    let (reached, on) = match (host.launcher.as_str(), report.reached_at) {
        ("local", _) => (written, zone),
        (_, Some(at)) => (Some(at), report.reached_on.clone()),
        (_, None) => (written, None),
    };
    let of_one_link = |at: &IpAddr| matches!(at, IpAddr::V6(at) if at.is_unicast_link_local());
    let interface = match (&host.data_interface, reached) {
        (Some(interface), _) => Some(interface.clone()),
        (None, Some(reached)) if of_one_link(&reached) => on,
        (None, Some(reached)) if right(&reached) => return Ok(reached),
        (None, Some(reached)) => report
            .interfaces
            .iter()
            .find(|(_, has)| has.contains(&reached))
            .map(|(interface, _)| interface.clone()),
        (None, None) => None,
    };
    let Some(interface) = interface else {
        return Err(format!(
            "host {name}: at which of its addresses the load shall arrive is not known; name its `data_interface`, one of {}",
            listed(report)
        ));
    };
    let Some(addresses) = report.interfaces.get(&interface) else {
        return Err(format!("host {name} has no interface {interface:?}; it has {}", listed(report)));
    };
    addresses.iter().copied().find(right).ok_or_else(|| {
        format!("host {name}: interface {interface:?} has no IPv{family} address that others could reach")
    })
}

fn listed(report: &HostReport) -> String {
    let names = report.interfaces.iter().filter(|(_, addresses)| !addresses.is_empty());
    names.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}

/// `environment.json` of a run on real hosts: this machine's (`own`), and by name each host's with its addresses and how well its
/// clock is known.
pub fn environment(own: &Map<String, Value>, hosts: &[RealHost], fleet: &Fleet) -> Value {
    let of_host = |host: &RealHost| {
        let report = fleet.report(&host.name)?;
        let mut all = report.environment.clone();
        all.insert("launcher".to_owned(), host.launcher.clone().into());
        let zone = report.reached_on.as_ref().map(|name| format!("%{name}")).unwrap_or_default();
        all.insert("reached_at".to_owned(), json!(report.reached_at.map(|at| format!("{at}{zone}"))));
        // What the agent said is not ours: what has another shape than expected is replaced.
        let mut interfaces = match all.remove("interfaces") {
            Some(Value::Object(interfaces)) => interfaces,
            _ => Map::new(),
        };
        for (name, addresses) in &report.interfaces {
            match interfaces.get_mut(name) {
                Some(Value::Object(interface)) => {
                    interface.insert("addresses".to_owned(), json!(addresses));
                }
                _ => {
                    interfaces.insert(name.clone(), json!({ "addresses": addresses }));
                }
            }
        }
        all.insert("interfaces".to_owned(), interfaces.into());
        all.insert("clock".to_owned(), clock(&host.name, fleet));
        Some((host.name.clone(), Value::Object(all)))
    };
    let mut environment = own.clone();
    environment.insert("clock".to_owned(), "estimated".into());
    let hosts: Map<String, Value> = hosts.iter().filter_map(of_host).collect();
    environment.insert("hosts".to_owned(), hosts.into());
    environment.into()
}

/// `"shared"`, or the host's clock minus the coordinator's when the run began.
fn clock(host: &str, fleet: &Fleet) -> Value {
    match fleet.clock_now(host) {
        None => "unknown".into(),
        Some(map) if map.exchange_count() == 0 => "shared".into(),
        Some(map) => json!({
            "offset_ns": map.offset_ns(weir_sys::clock::monotonic()).to_string(),
            "uncertainty_ns": map.uncertainty_ns(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> HostReport {
        let addresses = |list: &[&str]| list.iter().map(|it| it.parse().unwrap()).collect();
        HostReport {
            reached_at: Some("10.0.0.7".parse().unwrap()),
            reached_on: None,
            interfaces: [
                ("lo", addresses(&[])),
                ("eno1", addresses(&["10.0.0.7", "fd00::7"])),
                ("data0", addresses(&["192.168.9.7"])),
            ]
            .map(|(name, addresses): (&str, Vec<IpAddr>)| (name.to_owned(), addresses))
            .into(),
            environment: Map::new(),
        }
    }

    fn host() -> RealHost {
        RealHost::new("a-0", "alias-of-ssh")
    }

    #[test]
    fn load_goes_to_where_the_host_was_reached_unless_an_interface_is_named() {
        let address = |host: &RealHost, family| address_of(host, &report(), family);
        assert_eq!(address(&host(), 4), Ok("10.0.0.7".parse().unwrap()));
        assert_eq!(address(&host(), 6), Ok("fd00::7".parse().unwrap()));
        let mut named = host();
        named.data_interface = Some("data0".to_owned());
        assert_eq!(address(&named, 4), Ok("192.168.9.7".parse().unwrap()));
        let refused = address(&named, 6).unwrap_err();
        assert!(refused.contains("data0") && refused.contains("IPv6"), "{refused}");
        named.data_interface = Some("eth9".to_owned());
        let refused = address(&named, 4).unwrap_err();
        assert!(refused.contains("data0, eno1"), "{refused}");
    }

    // Spec: scenario.md#host-4
    #[test]
    fn a_host_reached_at_a_link_local_address_is_loaded_at_another_of_that_interface() {
        let reached_on = |name: &str| HostReport {
            reached_at: Some("fe80::7".parse().unwrap()),
            reached_on: Some(name.to_owned()),
            ..report()
        };
        let host = RealHost::new("a-0", "fe80::7%eth3");
        assert_eq!(address_of(&host, &reached_on("eno1"), 4), Ok("10.0.0.7".parse().unwrap()));
        assert_eq!(address_of(&host, &reached_on("eno1"), 6), Ok("fd00::7".parse().unwrap()));
        let refused = address_of(&host, &reached_on("data0"), 6).unwrap_err();
        assert!(refused.contains("\"data0\" has no IPv6 address that others could reach"), "{refused}");
        let silent = HostReport { reached_on: None, ..reached_on("") };
        assert!(address_of(&host, &silent, 4).unwrap_err().contains("name its `data_interface`"));
        let here = RealHost { launcher: "local".to_owned(), ..RealHost::new("a-0", "fe80::7%eno1") };
        assert_eq!(address_of(&here, &silent, 4), Ok("10.0.0.7".parse().unwrap()));
    }

    #[test]
    fn a_host_that_cannot_say_where_it_was_reached_is_asked_for_an_interface() {
        let silent = HostReport { reached_at: None, ..report() };
        let refused = address_of(&host(), &silent, 4).unwrap_err();
        assert!(refused.contains("data_interface"), "{refused}");
        let written = RealHost::new("a-0", "10.0.0.9");
        assert_eq!(address_of(&written, &silent, 4), Ok("10.0.0.9".parse().unwrap()));
    }
}
