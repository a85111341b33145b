//! `capture = […]` of a step: pcapng files in the results folder, from the step's start to its end.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use weir_core::Instant;
use weir_core::scenario::{Configuration, Step};
use weir_lab::Lab;
use weir_lab::capture::{Epoch, Request};
use weir_report::{CAPTURES, Writer};

/// The captures of one trial's steps.
pub struct Captures<'a> {
    configuration: &'a Configuration,
    trial: u32,
    /// Number and file of each step's, while it runs.
    running: Vec<Option<(u64, String)>>,
}

/// What to say of a capture on the timeline.
pub struct Said {
    pub event: &'static str,
    pub text: String,
}

impl<'a> Captures<'a> {
    pub fn new(configuration: &'a Configuration, trial: u32) -> Self {
        Captures { configuration, trial, running: vec![None; configuration.steps.len()] }
    }

    /// Begins what a step asks for; time stamps count from the trial's start. `None` if it asks for nothing.
    pub fn begin(
        &mut self,
        lab: &mut Lab,
        writer: &mut Writer,
        step: usize,
        trial_start: Instant,
    ) -> Option<Said> {
        let own = &self.configuration.steps[step];
        if own.capture.is_empty() {
            return None;
        }
        let name = self.file_name(own);
        let links = self.configuration.topology.directed_links();
        let request = Request {
            ports: own.capture.iter().map(|link| links[*link].name.clone()).collect(),
            snap_bytes: None,
            count: None,
            duration_ns: None,
            epoch: Epoch::At(trial_start.as_ns()),
        };
        let begun = writer.capture(&name).map_err(|error| error.to_string()).and_then(|file| {
            lab.capture(&request, Path::new(&opened(&file))).map_err(|error| error.to_string())
        });
        match begun {
            Ok(number) => {
                self.running[step] = Some((number, format!("{CAPTURES}/{name}")));
                None
            }
            Err(error) => Some(Said {
                event: "capture-failed",
                text: format!("step {} is not captured: {error}", own.name),
            }),
        }
    }

    /// Ends the step's capture and says what is in it. `None` if there is none.
    pub fn end(&mut self, lab: &mut Lab, step: usize) -> Option<Said> {
        let (number, file) = self.running[step].take()?;
        let name = &self.configuration.steps[step].name;
        let failed = |why: String| Said {
            event: "capture-failed",
            text: format!("the capture of step {name} in {file} broke off: {why}"),
        };
        Some(match lab.end_capture(number) {
            Err(error) => failed(error.to_string()),
            Ok(outcome) => match outcome.error {
                Some(error) => failed(error),
                None if outcome.lost > 0 => Said {
                    event: "capture",
                    text: format!(
                        "{file} has {} packets of step {name}; {} are missing because they could not be written in time",
                        outcome.packets, outcome.lost
                    ),
                },
                None => Said {
                    event: "capture",
                    text: format!("{file} has {} packets of step {name}", outcome.packets),
                },
            },
        })
    }

    /// Letters that a file name may have everywhere.
    fn file_name(&self, step: &Step) -> String {
        let plain = |letter: char| {
            if letter.is_ascii_alphanumeric() || "-_.,=".contains(letter) { letter } else { '_' }
        };
        let id: String = self.configuration.id.chars().map(plain).take(150).collect();
        let id = if id.is_empty() { id } else { format!("{id}-") };
        format!("{id}trial-{}-{}.pcapng", self.trial, step.name)
    }
}

/// The file by a path that leads to it alone, whatever stands by its name now. The fabric opens it before it answers.
fn opened(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}
