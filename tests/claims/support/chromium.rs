//! A headless Chromium, spoken to in its own protocol over two pipes: what a reader of the report would see, in numbers.

use crate::support::eventually;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The browser answers within this, also on a machine that compiles beside it.
const ANSWER_MAX: Duration = Duration::from_secs(60);

pub struct Chromium {
    child: Child,
    orders: File,
    answers: Receiver<Value>,
    session: String,
    next: u64,
    /// What the page said or asked for since it was opened.
    events: Vec<Value>,
    _home: tempfile::TempDir,
}

/// The browser that `scripts/ensure-lab --for-tests` installs, or the one that `WEIR_CHROMIUM` names. Without one the test fails:
/// a suite that skips it would look complete.
fn program() -> PathBuf {
    if let Some(named) = std::env::var_os("WEIR_CHROMIUM") {
        return named.into();
    }
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let folders = std::env::var("PATH").unwrap_or_default();
    let found =
        names.iter().flat_map(|name| folders.split(':').map(move |folder| Path::new(folder).join(name)));
    found.into_iter().find(|path| path.is_file()).unwrap_or_else(|| {
        panic!("no Chromium in PATH: run scripts/ensure-lab --for-tests, or name one with WEIR_CHROMIUM")
    })
}

impl Chromium {
    pub fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let [orders, answers] = ["orders", "answers"].map(|name| home.path().join(name));
        assert!(Command::new("mkfifo").args([&orders, &answers]).status().unwrap().success());
        // The protocol's pipes are descriptors 3 and 4; a shell opens them without code of ours between fork and exec.
        let mut child = Command::new("sh")
            .arg("-c")
            .arg("in=$1; out=$2; shift 2; exec \"$@\" 3<\"$in\" 4>\"$out\"")
            .args([Path::new("sh"), &orders, &answers, &program()])
            .args(["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync", "--disable-default-apps"])
            .args(["--force-color-profile=srgb", "--font-render-hinting=none", "--lang=en"])
            .arg(format!("--user-data-dir={}", home.path().join("profile").display()))
            .arg("about:blank")
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        // In the order in which the shell opens them: each waits for the other end.
        let orders = OpenOptions::new().write(true).open(orders).unwrap();
        let answers = BufReader::new(File::open(answers).unwrap());
        let (tell, hear) = channel();
        std::thread::spawn(move || {
            for message in answers.split(0) {
                let Ok(message) = message else { break };
                let Ok(message) = serde_json::from_slice(&message) else { break };
                if tell.send(message).is_err() {
                    break;
                }
            }
        });
        eventually("the browser is there", ANSWER_MAX, || child.try_wait().unwrap().is_none());
        let mut browser = Chromium {
            child,
            orders,
            answers: hear,
            session: String::new(),
            next: 1,
            events: Vec::new(),
            _home: home,
        };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attached =
            browser.ask("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Sends an order and waits for its answer; what the page says meanwhile is kept.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        let mut order = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            order["sessionId"] = self.session.clone().into();
        }
        let mut bytes = order.to_string().into_bytes();
        bytes.push(0);
        self.orders.write_all(&bytes).expect("the browser listens");
        let until = Instant::now() + ANSWER_MAX;
        loop {
            let message = self.hear(until, method);
            if message["id"] == id {
                assert!(message.get("error").is_none(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn hear(&mut self, until: Instant, what: &str) -> Value {
        match self.answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => panic!("no answer to {what} within {ANSWER_MAX:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("the browser went away during {what}"),
        }
    }

    /// Opens a page at a width in CSS pixels and waits until it is drawn.
    pub fn open(&mut self, page: &Path, width: u32) {
        self.width(width);
        self.events.clear();
        let url = format!("file://{}", page.display());
        let opened = self.ask("Page.navigate", json!({ "url": url }));
        assert!(opened.get("errorText").is_none(), "{url}: {opened}");
        let until = Instant::now() + ANSWER_MAX;
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.hear(until, "loading");
            self.events.push(event);
        }
        self.evaluate("document.fonts.ready.then(() => true)");
    }

    pub fn width(&mut self, width: u32) {
        let metrics = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500});
        self.ask("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// `print` or `screen`; `light` or `dark`.
    pub fn media(&mut self, media: &str, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.ask("Emulation.setEmulatedMedia", json!({"media": media, "features": features}));
    }

    pub fn evaluate(&mut self, script: &str) -> Value {
        let asked = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", asked);
        assert!(answer.get("exceptionDetails").is_none(), "{answer:#}");
        answer["result"]["value"].clone()
    }

    /// Errors and warnings of the console, and addresses beyond the page itself that were asked for.
    pub fn complaints(&mut self) -> Vec<String> {
        // Answered after all that the page has said so far.
        self.evaluate("1");
        let own = self.evaluate("location.href");
        let said = |event: &Value| {
            let params = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" => Some(params.to_string()),
                "Log.entryAdded" => Some(params["entry"]["text"].to_string()),
                "Network.requestWillBeSent" => {
                    let url = &params["request"]["url"];
                    (*url != own).then(|| format!("asked for {url}"))
                }
                _ => None,
            }
        };
        self.events.iter().filter_map(said).collect()
    }

    /// The page as it would be printed on A4.
    pub fn pdf(&mut self) -> Vec<u8> {
        let asked = json!({"printBackground": true, "paperWidth": 8.27, "paperHeight": 11.69});
        let answer = self.ask("Page.printToPDF", asked);
        base64(answer["data"].as_str().expect("a document"))
    }

    /// The top of the page down to `height`, or all of it, as PNG.
    pub fn picture(&mut self, width: u32, height: Option<u32>) -> Vec<u8> {
        let whole = self.evaluate("document.documentElement.scrollHeight").as_u64().expect("a height");
        let height = height.map_or(whole, u64::from).min(whole);
        let clip = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 1});
        let asked = json!({"format": "png", "clip": clip, "captureBeyondViewport": true});
        let answer = self.ask("Page.captureScreenshot", asked);
        base64(answer["data"].as_str().expect("a picture"))
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Base64 of RFC 4648, as the protocol sends what is no text.
fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut bits, mut held) = (Vec::with_capacity(text.len() * 3 / 4), 0_u32, 0);
    for value in text.bytes().filter_map(digit) {
        (bits, held) = (bits << 6 | value, held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    bytes
}
