//! The packaged server, started on loopback in a folder of the test's own and stopped by process id.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const READY_WITHIN: Duration = Duration::from_secs(30);

/// Whom the package runs it as: it refuses to be root.
fn account() -> Option<(u32, u32)> {
    let is_root =
        fs::metadata("/proc/self").is_ok_and(|about| std::os::unix::fs::MetadataExt::uid(&about) == 0);
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = accounts.lines().find(|line| line.starts_with("xrootd:")).filter(|_| is_root)?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn spawn(daemon: &str, folder: &Path, configuration: &Path) -> Child {
    let mut command = Command::new(daemon);
    command.arg("-c").arg(configuration).args(["-n", "t", "-l"]).arg(folder.join(format!("{daemon}.log")));
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some((uid, gid)) = account() {
        command.uid(uid).gid(gid);
    }
    command.spawn().unwrap_or_else(|error| {
        panic!("{daemon} cannot be started ({error}): install it (package xrootd-server)")
    })
}

fn wait_for(port: u16) {
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < READY_WITHIN, "nothing listens at port {port} within {READY_WITHIN:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(folder.path().join("store")).unwrap();
    give(&folder.path().join("store"));
    folder
}

fn give(path: &Path) {
    if let Some((uid, gid)) = account() {
        chown(path, Some(uid), Some(gid)).unwrap();
    }
}

/// An authority, and a key with a certificate of it for 127.0.0.1, which the server may read.
fn certify(folder: &Path) {
    fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj";
    for arguments in [
        format!("req -x509 {key} /CN=weir-test -days 2 -keyout authority.key -out authority.pem"),
        format!("req {key} /CN=127.0.0.1 -keyout server.key -out server.csr"),
        "x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 -extfile names -out server.pem".to_owned(),
    ] {
        let ran = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output();
        let ran = ran.unwrap_or_else(|error| {
            panic!("openssl cannot be started ({error}): install it (package openssl)")
        });
        assert!(ran.status.success(), "{arguments}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    for name in ["server.pem", "server.key"] {
        give(&folder.join(name));
    }
}

/// One daemon; it is killed when it is dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A configuration in a folder of its own: what all have, and what `own` says.
fn configured(root: &Path, name: &str, port: u16, own: &str) -> (PathBuf, PathBuf) {
    let folder = root.join(name);
    fs::create_dir_all(&folder).unwrap();
    give(&folder);
    let at = folder.display();
    let text = format!(
        "all.export /store\noss.localroot {}\nxrd.port {port}\nxrd.network nodnr norpipa\nall.adminpath {at}\nall.pidpath {at}\n{own}",
        root.display()
    );
    let file = folder.join("configuration");
    fs::write(&file, text).unwrap();
    (folder, file)
}

pub struct Server {
    folder: TempDir,
    port: u16,
    daemon: Daemon,
}

impl Server {
    pub fn start() -> Server {
        Stopped { folder: folder(), port: free_port() }.start()
    }
    /// With a certificate of an authority of its own, of which `own` says how it is used.
    pub fn start_secure(own: &str) -> Server {
        let folder = folder();
        let at = folder.path();
        certify(at);
        let own = format!("xrd.tls {0}/server.pem {0}/server.key\nxrd.tlsca noverify\n{own}", at.display());
        Stopped { folder, port: free_port() }.start_with(&own)
    }
    /// The authority's certificate.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }
    pub fn stop(self) -> Stopped {
        Stopped { folder: self.folder, port: self.port }
    }
    /// `-STOP`: it stands still and says nothing; `-CONT`: it goes on.
    pub fn signal(&self, signal: &str) {
        let process = self.daemon.0.id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }
    /// Makes what the test wrote the server's own.
    pub fn give(&self, path: &Path) {
        give(path);
    }
    pub fn url(&self, name: &str) -> String {
        format!("root://127.0.0.1:{}//store/{name}", self.port)
    }
}

/// A server that is not running; its files and its port stay.
pub struct Stopped {
    folder: TempDir,
    port: u16,
}

impl Stopped {
    pub fn start(self) -> Server {
        self.start_with("")
    }
    fn start_with(self, own: &str) -> Server {
        let (folder, configuration) = configured(self.folder.path(), "one", self.port, own);
        let daemon = Daemon(spawn("xrootd", &folder, &configuration));
        wait_for(self.port);
        Server { folder: self.folder, port: self.port, daemon }
    }
}
