//! Packaged servers, started on loopback in a folder of the test's own and stopped by process id.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const READY_WITHIN: Duration = Duration::from_secs(30);
pub const SECRET: &str = "weir-in-a-test";

/// A server; it is killed when it is dropped.
pub struct Server {
    folder: TempDir,
    pub port: u16,
    process: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn start(folder: TempDir, port: u16, program: &str, arguments: &[&str]) -> Server {
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let process = Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| {
            panic!("{program} cannot be started ({error}): scripts/ensure-systems installs it")
        });
    let mut server = Server { folder, port, process };
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let log = || fs::read_to_string(server.folder.path().join("log")).unwrap_or_default();
        assert!(
            began.elapsed() < READY_WITHIN,
            "{program} does not listen within {READY_WITHIN:?}: {}",
            log()
        );
        let ended = server.process.try_wait().unwrap();
        assert!(ended.is_none(), "{program} ended: {}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

impl Server {
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub fn authority(&self) -> PathBuf {
        authority(self.folder.path())
    }

    pub fn webdav(is_secure: bool) -> Server {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        fs::create_dir(folder.path().join("store")).unwrap();
        let at = folder.path().display().to_string();
        let tls = if is_secure {
            let (key, certificate) = certificate(folder.path());
            format!("ssl_certificate {}; ssl_certificate_key {};", certificate.display(), key.display())
        } else {
            String::new()
        };
        let listen = if is_secure { format!("{port} ssl") } else { port.to_string() };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {at}/{kind};\n"))
            .collect();
        let text = format!(
            "load_module /usr/lib/nginx/modules/ngx_http_dav_ext_module.so;\ndaemon off;\nuser root;\npid {at}/pid;\n\
             error_log stderr warn;\nevents {{ worker_connections 4096; }}\nhttp {{ access_log off;\n{temporary}\
             server {{ listen 127.0.0.1:{listen}; {tls} root {at}/store; client_max_body_size 0;\n\
             dav_methods PUT DELETE MKCOL COPY MOVE; dav_ext_methods PROPFIND OPTIONS; }} }}\n"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, text).unwrap();
        start(folder, port, "nginx", &["-c", file.to_str().unwrap(), "-p", &at, "-e", "stderr"])
    }

    /// With one bucket, `store`.
    pub fn objects() -> Server {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        fs::create_dir_all(folder.path().join("buckets/store")).unwrap();
        let root = folder.path().join("buckets");
        let listens = format!("127.0.0.1:{port}");
        let arguments = [
            "--port",
            &listens,
            "--access",
            "weir",
            "--secret",
            SECRET,
            "--keep-alive",
            "--quiet",
            "posix",
            root.to_str().unwrap(),
        ];
        start(folder, port, "versitygw", &arguments)
    }

    pub fn object_url(&self, key: &str, secret: &str) -> String {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        format!("s3://store/{key}?endpoint={endpoint}&access_key=weir&secret_key={secret}&part=5MiB")
    }
}

fn authority(folder: &Path) -> PathBuf {
    folder.join("authority.pem")
}

/// An authority, and a key with a certificate of it for 127.0.0.1.
fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    let openssl = |arguments: &str| {
        let ran = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output();
        let ran = ran.unwrap_or_else(|error| {
            panic!("openssl cannot be started ({error}): install it (package openssl)")
        });
        assert!(ran.status.success(), "{arguments}: {}", String::from_utf8_lossy(&ran.stderr));
    };
    openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=weir-test -keyout authority.key -out authority.pem",
    );
    openssl(
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=127.0.0.1 -keyout server.key -out server.csr",
    );
    fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    openssl(
        "x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 -extfile names -out server.pem",
    );
    (folder.join("server.key"), folder.join("server.pem"))
}
