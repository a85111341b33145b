//! A real ZooKeeper server for tests: a process of its own, on a free port of the loopback interface, with a folder of its own.
//! `scripts/ensure-zookeeper` installs what it needs; without that a test fails, since a suite that skips it would look complete.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// It answers within this, also on a machine that gives it little time.
const ANSWER_MAX: Duration = Duration::from_secs(300);
/// As the Debian package names it; its manifest names the libraries that it needs.
const JAR: &str = "/usr/share/java/zookeeper.jar";
const LOG_JAR: &str = "/usr/share/java/slf4j-simple.jar";

pub struct Server {
    folder: tempfile::TempDir,
    port: u16,
    process: Option<Child>,
}

fn jar() -> PathBuf {
    let named = std::env::var_os("WEIR_ZOOKEEPER_JAR").map_or_else(|| PathBuf::from(JAR), PathBuf::from);
    assert!(
        named.is_file(),
        "no ZooKeeper at {}: run scripts/ensure-zookeeper, or name its jar with WEIR_ZOOKEEPER_JAR",
        named.display()
    );
    named
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

impl Server {
    /// With ticks of 100 ms, so that sessions may time out after 0.2 s to an hour.
    pub fn start() -> Server {
        for _ in 0..5 {
            let folder = tempfile::tempdir().unwrap();
            let mut server = Server { folder, port: free_port(), process: None };
            // Someone else may have taken the port before the server did.
            if server.again() {
                return server;
            }
        }
        panic!("no port on which ZooKeeper would start");
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Starts the process, with the data it finds, and waits until it serves. False: it has ended instead.
    pub fn again(&mut self) -> bool {
        assert!(self.process.is_none(), "it runs already");
        let (data, configuration) = (self.data(), self.folder.path().join("zoo.cfg"));
        std::fs::create_dir_all(&data).unwrap();
        let lines = [
            "tickTime=100".to_owned(),
            "minSessionTimeout=200".to_owned(),
            "maxSessionTimeout=3600000".to_owned(),
            format!("dataDir={}", data.display()),
            "clientPortAddress=127.0.0.1".to_owned(),
            format!("clientPort={}", self.port),
            "admin.enableServer=false".to_owned(),
            "maxClientCnxns=0".to_owned(),
            "4lw.commands.whitelist=srvr".to_owned(),
        ];
        std::fs::write(&configuration, lines.join("\n")).unwrap();
        let log = std::fs::File::create(self.log_path()).unwrap();
        let process = Command::new("java")
            // The least that it runs in, and with: it is to take nothing from what is being tested.
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"])
            .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dzookeeper.forceSync=no"])
            .arg("-cp")
            .arg(format!("{}:{LOG_JAR}", jar().display()))
            .arg("org.apache.zookeeper.server.ZooKeeperServerMain")
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|problem| panic!("java: {problem}; run scripts/ensure-zookeeper"));
        self.process = Some(process);
        let until = Instant::now() + ANSWER_MAX;
        while !self.serves() {
            if self.process.as_mut().unwrap().try_wait().unwrap().is_some() {
                self.process = None;
                eprintln!("ZooKeeper has ended: {}", self.log());
                return false;
            }
            assert!(Instant::now() < until, "ZooKeeper does not answer: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        true
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }
    fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn serves(&self) -> bool {
        let ask = || -> std::io::Result<String> {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"srvr")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.contains("Mode: standalone"))
    }

    /// As a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Everything that it knew is gone. It must not run.
    pub fn forget(&mut self) {
        assert!(self.process.is_none(), "it runs");
        remove(&self.data());
    }
}

fn remove(folder: &Path) {
    if folder.exists() {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
