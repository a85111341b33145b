//! From a recipe and a place to a system that works.

use crate::daemon::{Asked, Daemon, Drain, LOOK_AGAIN, Order};
use crate::error::{ServiceError, last_lines};
use crate::recipe::{Argument, Ready, Recipe, StartStep, tuning};
use crate::running::{LOG, Running, WhenCold};
use crate::template::{HostWords, Words, arguments, fill, holds, role_words};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use weir_core::scenario::{Priority, Role, Service};
use weir_sys::directory::Directory;
use weir_sys::holder::Holder;
use weir_sys::process::{Child, User};
use weir_telemetry::service::{Counters, CountersAt};
use weir_telemetry::transfers::Transfers;

/// A host on which services may live.
pub struct Ground<'a> {
    pub name: &'a str,
    pub address: IpAddr,
    pub address6: IpAddr,
    pub holder: &'a Holder,
    pub folder: Folder,
    /// Disks by service; what a service without one keeps is on the machine's.
    pub disks: BTreeMap<String, Vec<Folder>>,
}

/// A folder as the machine and as a host have it.
#[derive(Clone, Debug)]
pub struct Folder {
    pub outside: PathBuf,
    pub inside: PathBuf,
}

impl Folder {
    pub fn join(&self, below: impl AsRef<Path>) -> Folder {
        Folder { outside: self.outside.join(&below), inside: self.inside.join(&below) }
    }
}

impl Ground<'_> {
    fn words(&self) -> HostWords {
        let (address, address6) = (self.address.to_string(), self.address6.to_string());
        HostWords { name: self.name.to_owned(), address, address6 }
    }
}

/// Puts content into a new file: the file, its name, and its size.
pub type Fill<'a> = &'a dyn Fn(File, &str, u64) -> io::Result<()>;

/// What bringing up needs beside a service and its recipe.
pub struct Setting<'a> {
    /// Puts content where `fill` cannot reach, as a process of a client: a program, and its first arguments; a path with `{n}`, the
    /// number of files and their size follow.
    pub filler: Vec<String>,
    /// Hosts by index in the topology.
    pub hosts: &'a BTreeMap<usize, Ground<'a>>,
    /// All hosts have it.
    pub shared: Folder,
    pub fill: Fill<'a>,
    /// Its processes end with their holders and not with this process.
    pub outlives_us: bool,
    /// True once it is to be given up.
    pub interrupted: &'a dyn Fn() -> bool,
}

/// One host in one role.
struct Spot<'a> {
    role: Role,
    host: usize,
    ground: &'a Ground<'a>,
    words: Words,
    priority: Priority,
    /// On the machine.
    state: PathBuf,
    /// Where it keeps what it has, one folder for each of its disks.
    disks: Vec<Folder>,
}

impl Spot<'_> {
    fn log(&self, name: &str) -> PathBuf {
        self.state.join(LOG).join(format!("{name}.out"))
    }
}

/// A service whose files are there, and whose processes are not.
pub struct Prepared<'a> {
    service: &'a Service,
    recipe: &'static Recipe,
    setting: &'a Setting<'a>,
    spots: Vec<Spot<'a>>,
    user: Option<User>,
    shared: PathBuf,
}

/// Lays out folders, configuration and content.
///
/// Errors: programs that are missing, and what cannot be written.
pub fn prepare<'a>(
    service: &'a Service,
    recipe: &'static Recipe,
    setting: &'a Setting<'a>,
) -> Result<Prepared<'a>, ServiceError> {
    recipe.check_installed(&service.name)?;
    let user = account(service, recipe)?;
    let spots = spots(service, recipe, setting)?;
    let shared = setting.shared.join(&service.name).outside;
    for spot in &spots {
        lay_out(service, recipe, spot, &shared, user)?;
    }
    put_content(service, recipe, &spots, setting, user)?;
    Ok(Prepared { service, recipe, setting, spots, user, shared })
}

impl Prepared<'_> {
    /// Starts its processes in the recipe's order, each waited for.
    ///
    /// Errors: what did not work, with the last lines of its log; what was started by then is ended.
    pub fn start(self) -> Result<Running, ServiceError> {
        let Prepared { service, recipe, setting, spots, user, shared } = self;
        let place =
            |spot: &Spot<'_>| (format!("{}/{}", spot.ground.name, spot.role.name()), spot.state.clone());
        let mut running = Running {
            name: service.name.clone(),
            system: recipe.schema.name.to_owned(),
            at: service.at.clone(),
            version: String::new(),
            tuning: tuning(recipe.schema.options, service),
            daemons: Vec::new(),
            folders: spots.iter().map(place).collect(),
            transfers: Vec::new(),
            when_cold: Vec::new(),
            shared,
            outlives_us: setting.outlives_us,
        };
        match start(service, recipe, setting, &spots, user, &mut running) {
            Ok(()) => Ok(running),
            Err(error) => {
                running.take_down();
                Err(error)
            }
        }
    }
}

fn failed(service: &Service, what: impl Into<String>) -> ServiceError {
    ServiceError::Start { service: service.name.clone(), what: what.into(), log: Vec::new() }
}

fn account(service: &Service, recipe: &Recipe) -> Result<Option<User>, ServiceError> {
    let Some(name) = &recipe.user else { return Ok(None) };
    match User::named(name) {
        Some(user) => Ok(Some(user)),
        None => Err(failed(
            service,
            format!("there is no user {name:?}, as whom its processes run\n  {} makes it", recipe.install()),
        )),
    }
}

fn spots<'a>(
    service: &Service,
    recipe: &Recipe,
    setting: &'a Setting<'_>,
) -> Result<Vec<Spot<'a>>, ServiceError> {
    let ground_of =
        |host: &usize| setting.hosts.get(host).ok_or_else(|| failed(service, "a host of it is not there"));
    let words_of = |host: usize| match setting.hosts.get(&host) {
        Some(ground) => ground.words(),
        None => HostWords::default(),
    };
    let role_words = role_words(service, &words_of);
    let mut spots = Vec::new();
    for (role, hosts) in &service.place {
        for (number, host) in hosts.iter().enumerate() {
            let ground = ground_of(host)?;
            let state = ground.folder.join(&service.name).join(role.name());
            let at = |name: &str| state.inside.join(name).display().to_string();
            let disks = ground.disks.get(&service.name).filter(|_| *role == Role::Server);
            let disks = disks.cloned().unwrap_or_else(|| vec![state.join("data")]);
            let inside = |folder: &Folder| folder.inside.display().to_string();
            spots.push(Spot {
                role: *role,
                host: *host,
                ground,
                words: Words {
                    number,
                    state: state.inside.display().to_string(),
                    data: disks.first().map(inside).unwrap_or_default(),
                    disks: disks.iter().map(inside).collect(),
                    run: at("run"),
                    log: at(LOG),
                    shared: setting.shared.inside.join(&service.name).display().to_string(),
                    ..Words::of(service, recipe, ground.words(), role_words.clone())
                },
                priority: service.priority_of(*role),
                state: state.outside,
                disks,
            });
        }
    }
    Ok(spots)
}

/// Folders and files of one host in one role. Only `data` and `run` are the daemons' own: what is written elsewhere, by us as root, no
/// daemon can lead astray.
fn lay_out(
    service: &Service,
    recipe: &Recipe,
    spot: &Spot<'_>,
    shared: &Path,
    user: Option<User>,
) -> Result<(), ServiceError> {
    let at = |path: &Path, error: io::Error| failed(service, format!("making {}: {error}", path.display()));
    let make = || {
        let state = Directory::create(&spot.state)?;
        state.folder(LOG)?;
        let disks = spot.disks.iter().map(|disk| disk.outside.as_path());
        for folder in disks.chain([state.folder("run")?.path(), shared]) {
            give(Directory::create(folder)?.path(), user)?;
        }
        Ok(())
    };
    make().map_err(|error| at(&spot.state, error))?;
    for part in recipe.files.iter().filter(|part| part.roles.contains(&spot.role)) {
        if !holds(recipe, part.only.as_ref(), &spot.words, true)? {
            continue;
        }
        let text = recipe.templates.get(&part.template).map(String::as_str).unwrap_or_default();
        let file = Path::new(&recipe.file).with_file_name(&part.template).display().to_string();
        let text = fill(&file, text, &spot.words)?;
        let path = spot.state.join(&part.path);
        let (folder, name) = part.path.rsplit_once('/').unwrap_or(("", &part.path));
        let folder = if folder.is_empty() { spot.state.clone() } else { spot.state.join(folder) };
        let write = || Directory::create(&folder)?.create_new_unsynced(name)?.write_all(text.as_bytes());
        write().map_err(|error| at(&path, error))?;
    }
    Ok(())
}

/// Makes something a user's own; `None`: it stays root's.
fn give(path: &Path, user: Option<User>) -> io::Result<()> {
    user.map_or(Ok(()), |user| chown(path, Some(user.uid), Some(user.gid)))
}

/// Deals the files of the service's content over its servers, in turn, each into the folder that the recipe says; copies of it to those that
/// follow.
fn put_content(
    service: &Service,
    recipe: &Recipe,
    spots: &[Spot<'_>],
    setting: &Setting<'_>,
    user: Option<User>,
) -> Result<(), ServiceError> {
    let (Some(content), Some(at)) = (&service.content, &recipe.content) else { return Ok(()) };
    let mut folders = Vec::new();
    let servers = || spots.iter().filter(|spot| spot.role == Role::Server);
    let most = servers().map(|spot| spot.disks.len()).max().unwrap_or(0);
    for (number, spot) in (0..most).flat_map(|number| servers().map(move |spot| (number, spot))) {
        let words = Words { disk: spot.words.disks.get(number).cloned(), ..spot.words.clone() };
        let inside = fill(&recipe.file, at, &words)?;
        let own = std::iter::once(&setting.shared).chain(&spot.disks).find_map(|folder| {
            let below = Path::new(&inside).strip_prefix(&folder.inside).ok()?;
            Some((&folder.outside, below.to_path_buf()))
        });
        let Some(folder) = own else {
            let text = format!("`content` {inside:?} is below none of `data`, `disk` and `shared`");
            return Err(ServiceError::Recipe { file: recipe.file.clone(), text });
        };
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    let copies = match (&recipe.copies, spots.first()) {
        (Some(copies), Some(spot)) => {
            let written = fill(&recipe.file, copies, &spot.words)?;
            written.parse().map_err(|_| ServiceError::Recipe {
                file: recipe.file.clone(),
                text: format!("`copies` {written:?} is no number"),
            })?
        }
        _ => 1,
    };
    let apart = folders.len().min(servers().count());
    if copies > apart {
        let text = format!("each file is to lie on {copies} servers, and {apart} have storage of their own");
        return Err(failed(service, text));
    }
    for (number, copy) in (0..content.files).flat_map(|number| (0..copies).map(move |copy| (number, copy))) {
        if (setting.interrupted)() {
            return Err(failed(service, "interrupted"));
        }
        let Some((folder, own)) = folders.get((number as usize + copy) % folders.len().max(1)) else { break };
        let below = own.join(content.path.replace("{n}", &number.to_string())).display().to_string();
        let put = || {
            let mut words: Vec<&str> = below.split('/').collect();
            let name = words.pop().unwrap_or_default();
            let mut into = Directory::open(folder)?;
            for word in words {
                into = into.folder(word)?;
                give(into.path(), user)?;
            }
            (setting.fill)(into.create_new_unsynced(name)?, name, content.size_bytes)?;
            give(&into.path().join(name), user)
        };
        put()
            .map_err(|error: io::Error| failed(service, format!("writing its content, {below}: {error}")))?;
    }
    Ok(())
}

fn start(
    service: &Service,
    recipe: &'static Recipe,
    setting: &Setting<'_>,
    spots: &[Spot<'_>],
    user: Option<User>,
    running: &mut Running,
) -> Result<(), ServiceError> {
    if let (false, Some(spot)) = (recipe.version.is_empty(), spots.first()) {
        running.version = version(recipe, spot, user);
    }
    let has = |role: &Role| service.place.iter().any(|(own, _)| own == role);
    for step in recipe.steps.iter().filter(|step| step.with.iter().all(has)) {
        let chosen = spots.iter().filter(|spot| step.roles.contains(&spot.role));
        let chosen: Vec<&Spot<'_>> = if step.once { chosen.take(1).collect() } else { chosen.collect() };
        let Some(first) = chosen.first() else { continue };
        if !holds(recipe, step.only.as_ref(), &first.words, true)? {
            continue;
        }
        let is_cold = holds(recipe, step.cold.as_ref(), &first.words, false)?;
        if step.cold.is_some() && !step.stays {
            if !is_cold {
                continue;
            }
            for spot in &chosen {
                let order =
                    order(recipe, &step.run, spot, &spot.words, &step.name, user, setting.outlives_us)?;
                running.when_cold.push(WhenCold { host: spot.host, within: step.within, order });
            }
            continue;
        }
        let until = Instant::now() + step.within;
        let waiting = Waiting { service, recipe, step, setting, user, until };
        for each in spots[0].words.each_of(step.each) {
            let mut children = Vec::new();
            for spot in &chosen {
                let words = Words { each: each.clone(), ..spot.words.clone() };
                let order = order(recipe, &step.run, spot, &words, &step.name, user, setting.outlives_us)?;
                // It is heard from its first word on.
                let transfers = transfers(service, recipe, step, spot, setting)?;
                let child = order.start(spot.ground.holder).map_err(|error| {
                    let what = format!("{} on {} could not be started: {error}", step.name, spot.ground.name);
                    failed(service, what)
                })?;
                if step.stays {
                    let host_name = spot.ground.name.to_owned();
                    running.transfers.extend(transfers.iter().map(|own| (host_name.clone(), own.clone())));
                    running.daemons.push(Daemon {
                        name: step.name.clone(),
                        role: spot.role,
                        host: spot.host,
                        host_name,
                        order,
                        ready: waiting.questions(spot)?,
                        counters: counters(recipe, step, spot)?,
                        transfers,
                        drain: drain(recipe, step, spot)?,
                        mount: service
                            .mount
                            .as_ref()
                            .filter(|_| spot.role == Role::Client)
                            .map(|it| it.at.clone()),
                        is_cold: is_cold || spot.role == Role::Client,
                        child: Some(child),
                        is_down: false,
                    });
                } else {
                    children.push((child, order));
                }
            }
            for (spot, (child, order)) in chosen.iter().zip(&mut children) {
                waiting.for_the_end(spot, child, order)?;
            }
        }
        for spot in &chosen {
            for ready in &waiting.questions(spot)? {
                waiting.for_ready(spot, ready, &mut running.daemons)?;
            }
        }
    }
    write_content(service, recipe, setting, spots)
}

/// Files are taken to be written at this rate at least, by clients far away too.
const CONTENT_BYTES_PER_SECOND: u64 = 500_000;

/// Content of a system whose servers cannot be given it: its first client writes it.
fn write_content(
    service: &Service,
    recipe: &'static Recipe,
    setting: &Setting<'_>,
    spots: &[Spot<'_>],
) -> Result<(), ServiceError> {
    let (Some(content), None, Some(mount)) = (&service.content, &recipe.content, &service.mount) else {
        return Ok(());
    };
    let client = spots.iter().find(|spot| spot.role == Role::Client);
    let client = client.ok_or_else(|| failed(service, "it has no client that could write its content"))?;
    let path = format!("{}/{}", mount.at.trim_end_matches('/'), content.path);
    let numbers = [content.files.to_string(), content.size_bytes.to_string()];
    let run: Vec<String> = setting.filler.iter().cloned().chain([path]).chain(numbers).collect();
    let bytes = content.files.saturating_mul(content.size_bytes);
    let step = StartStep {
        within: Duration::from_secs(30 + bytes / CONTENT_BYTES_PER_SECOND),
        ..StartStep::command("content")
    };
    let order = Order {
        run,
        user: None,
        log: client.log(&step.name),
        home: client.words.state.clone(),
        outlives_us: false,
        priority: Priority::Low,
    };
    let started = order.start(client.ground.holder);
    let mut child = started.map_err(|error| failed(service, format!("writing its content: {error}")))?;
    let until = Instant::now() + step.within;
    let waiting = Waiting { service, recipe, step: &step, setting, user: None, until };
    waiting.for_the_end(client, &mut child, &order)
}

fn order(
    recipe: &Recipe,
    run: &[Argument],
    spot: &Spot<'_>,
    words: &Words,
    name: &str,
    user: Option<User>,
    outlives_us: bool,
) -> Result<Order, ServiceError> {
    let run = arguments(&recipe.file, run, words)?;
    let home = spot.words.state.clone();
    Ok(Order { run, user, log: spot.log(name), home, outlives_us, priority: spot.priority })
}

/// Where a daemon says what it counts.
fn counters(recipe: &Recipe, step: &StartStep, spot: &Spot<'_>) -> Result<Option<Counters>, ServiceError> {
    let Some(part) = &step.counters else { return Ok(None) };
    let below = |text: &str| below_run(recipe, step, text, spot);
    let at = match (&part.socket, &part.file) {
        (Some(socket), _) => CountersAt::Socket { socket: below(socket)?, path: part.path.clone() },
        (None, file) => CountersAt::File(below(file.as_deref().unwrap_or_default())?),
    };
    Ok(Some(Counters { at, samples: part.samples() }))
}

/// Where a daemon's word of what is open on it is heard; nowhere where nobody stays to hear it.
fn transfers(
    service: &Service,
    recipe: &Recipe,
    step: &StartStep,
    spot: &Spot<'_>,
    setting: &Setting<'_>,
) -> Result<Option<Arc<Transfers>>, ServiceError> {
    let Some(part) = step.transfers.as_ref().filter(|_| !setting.outlives_us) else { return Ok(None) };
    let text = fill(&recipe.file, &part.port, &spot.words)?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    let port = port_in(recipe, step, &text)?;
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).and_then(Transfers::at);
    let bound = spot.ground.holder.run_in_network(bind).and_then(|bound| bound);
    let transfers = bound.map_err(|error| {
        failed(
            service,
            format!(
                "its word of transfers cannot be heard on {}, UDP port {port}: {error}",
                spot.ground.name
            ),
        )
    })?;
    Ok(Some(Arc::new(transfers)))
}

fn port_in(recipe: &Recipe, step: &StartStep, text: &str) -> Result<u16, ServiceError> {
    text.trim().parse().map_err(|_| ServiceError::Recipe {
        file: recipe.file.clone(),
        text: format!("step {}: {text:?} is no port", step.name),
    })
}

fn drain(recipe: &Recipe, step: &StartStep, spot: &Spot<'_>) -> Result<Option<Drain>, ServiceError> {
    let Some(part) = step.drain.as_ref().filter(|drain| drain.roles.contains(&spot.role)) else {
        return Ok(None);
    };
    let socket = below_run(recipe, step, &part.socket, spot)?;
    let lines = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    Ok(Some(Drain { socket, out: lines(&part.out), back: lines(&part.back), is_out: false }))
}

/// A socket or a file of a daemon, as the machine has it.
fn below_run(
    recipe: &Recipe,
    step: &StartStep,
    text: &str,
    spot: &Spot<'_>,
) -> Result<PathBuf, ServiceError> {
    let inside = fill(&recipe.file, text, &spot.words)?;
    match Path::new(&inside).strip_prefix(&spot.words.run) {
        Ok(below) => Ok(spot.state.join("run").join(below)),
        Err(_) => {
            let text = format!("step {}: {inside:?} is not below `run`", step.name);
            Err(ServiceError::Recipe { file: recipe.file.clone(), text })
        }
    }
}

/// What the recipe's command says of the version: its first line that is not empty.
fn version(recipe: &Recipe, spot: &Spot<'_>, user: Option<User>) -> String {
    let run: Vec<Argument> = recipe.version.iter().cloned().map(Argument::One).collect();
    let asked = order(recipe, &run, spot, &spot.words, "version", user, false);
    let Ok(asked) = asked else { return String::new() };
    if let Ok(mut child) = asked.start(spot.ground.holder) {
        child.wait(crate::daemon::ASK_WITHIN);
    }
    let said = fs::read_to_string(&asked.log).unwrap_or_default();
    let line = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    weir_core::text::shown(line.trim(), 200)
}

/// Waits for one step of a start.
struct Waiting<'a> {
    service: &'a Service,
    recipe: &'a Recipe,
    step: &'a StartStep,
    setting: &'a Setting<'a>,
    user: Option<User>,
    until: Instant,
}

impl Waiting<'_> {
    fn problem(&self, what: String, log: &Path) -> ServiceError {
        ServiceError::Start { service: self.service.name.clone(), what, log: last_lines(log) }
    }

    /// Errors: it is time to give up.
    fn go_on(&self, spot: &Spot<'_>, what: &str) -> Result<(), ServiceError> {
        if (self.setting.interrupted)() {
            return Err(failed(self.service, "interrupted"));
        }
        if Instant::now() >= self.until {
            let what = format!(
                "{} on {} {what} within {} s",
                self.step.name,
                spot.ground.name,
                self.step.within.as_secs_f64()
            );
            return Err(self.problem(what, &spot.log(&self.step.name)));
        }
        thread::sleep(LOOK_AGAIN);
        Ok(())
    }

    fn for_the_end(&self, spot: &Spot<'_>, child: &mut Child, order: &Order) -> Result<(), ServiceError> {
        loop {
            match child.ended() {
                Some(status) if status.success() => return Ok(()),
                Some(_) if self.step.again && Instant::now() < self.until => {
                    self.go_on(spot, "does not succeed")?;
                    if let Ok(next) = order.start(spot.ground.holder) {
                        *child = next;
                    }
                }
                Some(status) => {
                    let how = weir_sys::process::describe(status);
                    let what = format!("{} on {} {how}", self.step.name, spot.ground.name);
                    return Err(self.problem(what, &spot.log(&self.step.name)));
                }
                None => self.go_on(spot, "did not end")?,
            }
        }
    }

    /// What shows that it works on this host.
    fn questions(&self, spot: &Spot<'_>) -> Result<Vec<Asked>, ServiceError> {
        let file = &self.recipe.file;
        let question = |ready: &Ready| match ready {
            Ready::Port(port) => {
                let text = fill(file, port, &spot.words)?;
                let port = port_in(self.recipe, self.step, &text)?;
                Ok(Asked::Port(SocketAddr::new(spot.ground.address, port)))
            }
            Ready::Line { text, log } => Ok(Asked::Line {
                text: fill(file, text, &spot.words)?,
                log: spot.log(log.as_ref().unwrap_or(&self.step.name)),
            }),
            Ready::Command(run) => {
                let name = format!("{}-ready", self.step.name);
                order(self.recipe, run, spot, &spot.words, &name, self.user, false).map(Asked::Command)
            }
        };
        self.step.ready.iter().map(question).collect()
    }

    fn for_ready(&self, spot: &Spot<'_>, ready: &Asked, daemons: &mut [Daemon]) -> Result<(), ServiceError> {
        loop {
            if let Some(how) = daemons.iter_mut().find_map(Daemon::failed) {
                let log = spot.log(&self.step.name);
                return Err(self.problem(how, &log));
            }
            if ready.holds(spot.ground.holder) {
                return Ok(());
            }
            self.go_on(spot, &ready.not_yet())?;
        }
    }
}
