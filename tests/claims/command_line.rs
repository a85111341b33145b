//! What a user meets before anything starts: help, checks, refusals.

use crate::support;
use crate::support::{beside, run, scenario, stream_step};
use std::fs;

fn refused(text: &str, more: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.toml");
    fs::write(&file, text).unwrap();
    let mut arguments = vec!["check", file.to_str().unwrap()];
    arguments.extend(more);
    let ran = run(&arguments);
    assert_eq!(ran.status, 2, "stdout: {}\nstderr: {}", ran.stdout, ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran.stderr
}

#[test]
fn the_help_fits_a_screen_and_every_command_has_an_example() {
    let help = run(&["--help"]);
    assert_eq!(help.status, 0);
    assert!(help.stdout.lines().count() <= 40, "{}", help.stdout);
    for command in ["run", "check", "new", "explain", "list", "report", "export", "doctor"] {
        let text = run(&[command, "--help"]).stdout;
        assert!(text.contains("Example"), "{command}: {text}");
    }
}

#[test]
fn the_shipped_scenarios_pass_the_check() {
    for entry in fs::read_dir(support::repository().join("scenarios")).unwrap() {
        let path = entry.unwrap().path();
        let ran = run(&["check", path.to_str().unwrap()]);
        assert_eq!(ran.status, 0, "{}: {}", path.display(), ran.stderr);
        let widest = ran.stdout.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= 80, "{} columns in\n{}", widest, ran.stdout);
    }
}

#[test]
fn a_misspelt_key_is_refused_with_its_place_and_the_nearest_name() {
    let text = scenario("rate = \"1Gbit/s\"\nrtt = \"16ms\"", &stream_step("strems = 4"));
    let line = text.lines().position(|line| line.starts_with("strems")).unwrap() + 1;
    let error = refused(&text, &[]);
    assert!(error.contains(&format!(":{line}:1")), "{error}");
    assert!(error.contains("streams"), "{error}");
}

#[test]
fn hostile_names_and_values_are_refused_and_never_reach_a_shell_or_a_path() {
    let good = scenario("rate = \"1Gbit/s\"\nrtt = \"16ms\"", &stream_step(""));
    for name in ["../../x", "<script>alert(1)</script>", "-oProxyCommand=touch /tmp/x", "A", "", "ü", "a b"]
    {
        refused(&good.replace("name = \"sibling\"", &format!("name = {name:?}")), &[]);
        refused(&good.replace("name = \"load\"", &format!("name = {name:?}")), &[]);
        refused(&good.replace("\"left\"", &format!("{name:?}")), &[]);
    }
    for set in
        ["step.load.streams=0", "step.load.nothing=1", "link.wan.rate=fast", "=", "step", "sweep.x=[1]"]
    {
        refused(&good, &["--set", set]);
    }
}

#[test]
fn a_file_of_ten_megabytes_of_random_bytes_or_of_nothing_is_refused_in_words() {
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("big.toml");
    for (line, count, words) in
        [("# comment\n", 1 << 20, "no [lab]"), ("a = [[[", 1 << 20, "TOML"), ("# long\n", 3 << 20, "16 MiB")]
    {
        fs::write(&file, line.repeat(count)).unwrap();
        let ran = run(&["check", file.to_str().unwrap()]);
        assert_eq!(ran.status, 2);
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
    let mut state = 1u64;
    for _ in 0..20 {
        let bytes: Vec<u8> = (0..4096)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as u8
            })
            .collect();
        fs::write(&file, bytes).unwrap();
        let ran = run(&["run", file.to_str().unwrap()]);
        assert_eq!(ran.status, 2);
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    }
    fs::write(&file, "").unwrap();
    assert_eq!(run(&["check", file.to_str().unwrap()]).status, 2);
    assert_eq!(run(&["check", "/nowhere/at/all.toml"]).status, 2);
}

// Spec: scenario.md#fault-9
#[test]
fn a_fault_on_a_service_that_another_case_needs_is_left_out_where_nobody_needs_it() {
    let service = |name: &str, host: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\nsystem = \"webdav\"\nplace = {{ server = \"{host}\" }}\n\
             disk = {{ size = \"100MB\", rate = \"20MB/s\" }}\ncontent = {{ path = \"f-{{n}}\", size = \"1MB\" }}\n"
        )
    };
    let fault = |name: &str, on: &str, act: &str| {
        format!(
            "[[fault]]\nname = \"{name}\"\nenabled = false\nat = \"1s\"\non = \"{on}\"\ndo = {{ {act} = {{ for = \"1s\" }} }}\n"
        )
    };
    let text = "[scenario]\nname = \"two\"\n[[lab.site]]\nname = \"a\"\nhosts = 3\n".to_owned()
        + &service("one", "a-1")
        + &service("two", "a-2")
        + &fault("stuck", "service.one.disk", "stuck")
        + &fault("dies", "service.two.server", "kill")
        + "[[step]]\nname = \"load\"\nworkload = \"io-random\"\nhosts = \"a-0\"\ntarget = \"service:one/f-0\"\nduration = \"3s\"\n\
           [[case]]\nname = \"one\"\nset = { \"fault.stuck.enabled\" = true }\n\
           [[case]]\nname = \"two\"\nset = { \"step.load.target\" = \"service:two/f-0\", \"fault.dies.enabled\" = true }\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.toml");
    fs::write(&file, &text).unwrap();
    let ran = run(&["check", file.to_str().unwrap()]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let error = refused(&text.replacen("enabled = false\n", "", 1), &[]);
    assert!(error.contains("no step needs a service \"one\" with disks"), "{error}");
    assert!(error.contains("`enabled = false` leaves the fault out"), "{error}");
    let error = refused(&text.replace("service.two.server", "service.tow.server"), &[]);
    assert!(error.contains("no step needs a service \"tow\""), "{error}");
}

#[test]
fn what_is_not_built_yet_is_refused_by_name() {
    let step = stream_step("").replace("\"stream\"", "\"copy\"");
    let error = refused(&scenario("rate = \"1Gbit/s\"\nrtt = \"16ms\"", &step), &[]);
    assert!(error.contains("\"copy\"") && error.contains("not yet"), "{error}");
}

#[test]
fn lists_are_arrays_of_name_about_and_params() {
    for seam in
        ["workload", "target", "scheduler", "death-policy", "membership", "launcher", "sampler", "sink"]
    {
        let ran = run(&["list", seam, "--json"]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        let members: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        for member in members.as_array().unwrap() {
            assert!(member["name"].is_string() && member["about"].is_string() && member["params"].is_array());
        }
        assert!(!members.as_array().unwrap().is_empty(), "{seam}");
    }
    assert_eq!(run(&["list", "nothing"]).status, 2);
}

// Spec: scenario.md#member-3
#[test]
fn every_parameter_that_a_scheduler_declares_can_be_set_in_a_scenario_and_on_the_command_line() {
    let quickstart = support::repository().join("scenarios/quickstart.toml");
    let quickstart = quickstart.to_str().unwrap();
    let mut set = 0;
    for seam in ["scheduler", "death-policy"] {
        let key = seam.replace('-', "_");
        let members: serde_json::Value =
            serde_json::from_str(&run(&["list", seam, "--json"]).stdout).unwrap();
        for member in members.as_array().unwrap() {
            let name = member["name"].as_str().unwrap();
            let flag = format!("--{seam}-set");
            for param in member["params"].as_array().unwrap() {
                let (param, kind) = (param["name"].as_str().unwrap(), &param["kind"]);
                // As a command line has it, and as TOML.
                let (plain, toml) = match (kind.as_str(), kind[0].as_str()) {
                    (Some("size"), _) => ("64KiB".to_owned(), "\"64KiB\"".to_owned()),
                    (None, Some(choice)) => (choice.to_owned(), format!("\"{choice}\"")),
                    _ => ("4".to_owned(), "4".to_owned()),
                };
                for change in [
                    format!("step.events.{key}={{name=\"{name}\",{param}={toml}}}"),
                    format!("{key}={{name=\"{name}\",{param}={toml}}}"),
                ] {
                    let ran = run(&["check", quickstart, "--set", &change]);
                    assert_eq!(ran.status, 0, "{change}: {}", ran.stderr);
                }
                let pair = format!("{param}={plain}");
                // No such port: what is wrong with the flags would have been said before.
                let ran = run(&[
                    "event",
                    "scheduler",
                    "--listen",
                    "127.0.0.1:99999",
                    &format!("--{seam}"),
                    name,
                    &flag,
                    &pair,
                ]);
                assert!(ran.status == 2 && !ran.stderr.contains(param), "{pair}: {}", ran.stderr);
                set += 1;
            }
            let ran = run(&["event", "scheduler", &format!("--{seam}"), name, &flag, "slotz=1"]);
            assert!(ran.status == 2 && ran.stderr.contains("takes no `slotz`"), "{name}: {}", ran.stderr);
        }
    }
    assert!(set >= 8, "{set} parameters were set");
    let ran = run(&["check", quickstart, "--set", "step.events.scheduler=weighted-calender"]);
    assert!(ran.status == 2 && ran.stderr.contains("did you mean \"weighted-calendar\"?"), "{}", ran.stderr);
}

#[test]
fn explain_knows_every_table_and_corrects_a_slip() {
    let ran = run(&["explain", "lab.link.rtt"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("rtt"), "{}", ran.stdout);
    let ran = run(&["explain", "lab.link.rt"]);
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.contains("rtt"), "{}", ran.stderr);
}

#[test]
fn completions_and_manual_pages_come_from_the_same_source() {
    assert!(run(&["generate", "completion", "bash"]).stdout.contains("weir"));
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(&["generate", "man", folder.path().to_str().unwrap()]).status, 0);
    assert!(folder.path().join("weir-run.1").exists());
}

#[test]
fn the_doctor_prints_one_document_whose_status_agrees_with_the_exit_status() {
    let _turn = beside();
    let ran = run(&["doctor", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).expect("one JSON document");
    assert_eq!(document["schema"], "weir.doctor/1");
    let findings = document["findings"].as_array().unwrap();
    let problems = findings.iter().filter(|it| it["severity"] == "problem").count();
    assert_eq!(ran.status, if problems > 0 { 2 } else { 0 }, "{document:#}");
    assert_eq!(document["status"] == "problem", problems > 0, "{document:#}");
    let guide = fs::read_to_string(support::repository().join("docs/guide/doctor.md")).unwrap();
    for finding in findings {
        let name = finding["name"].as_str().unwrap();
        assert!(guide.contains(&format!("`{name}`")), "the guide says nothing of {name}");
        assert!(finding["text"].as_str().is_some_and(|text| !text.is_empty()), "{finding}");
    }
    let text = run(&["doctor"]).stdout;
    assert!(text.contains("labs can"), "{text}");
    for line in text.lines().filter(|line| !line.trim_start().starts_with('$')) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn the_doctor_works_without_privileges_and_says_that_labs_need_root() {
    let _turn = beside();
    if std::process::Command::new("id").arg("-u").output().is_ok_and(|it| it.stdout != b"0\n") {
        let ran = run(&["doctor"]);
        assert_eq!(ran.status, 2, "{}", ran.stdout);
        return;
    }
    let program = env!("CARGO_BIN_EXE_weir");
    // The build folder may be closed to others; a copy is not.
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let copy = folder.path().join("weir");
    fs::copy(program, &copy).unwrap();
    let open = |path: &std::path::Path| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    open(folder.path());
    open(&copy);
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).args(["doctor", "--json"]);
    let output = command.output().expect("setpriv is there");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(output.status.code(), Some(2), "{document:#}");
    let problem =
        document["findings"].as_array().unwrap().iter().find(|it| it["severity"] == "problem").unwrap();
    assert_eq!(
        (problem["name"].as_str(), problem["mend"].as_str()),
        (Some("privilege"), Some("sudo weir doctor"))
    );
}
