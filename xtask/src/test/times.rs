//! What a test program says of its tests: `test NAME ... ok <1.234s>` for each, and a sum at the end.

use std::collections::HashMap;

/// Over all programs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
}

impl Counts {
    /// The sums in a program's output: `test result: ok. 3 passed; 0 failed; …`.
    pub fn of(output: &str) -> Counts {
        let mut counts = Counts::default();
        for line in output.lines().filter_map(|line| line.strip_prefix("test result: ")) {
            counts.passed += number_before(line, " passed").unwrap_or(0);
            counts.failed += number_before(line, " failed").unwrap_or(0);
        }
        counts
    }

    pub fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// The names of the tests that failed: the list before a program's sum, a name on each line.
pub fn failed(output: &str) -> Vec<&str> {
    let Some(list) = output.rsplit_once("\nfailures:\n").map(|(_, list)| list) else { return Vec::new() };
    list.lines().map_while(|line| line.strip_prefix("    ")).collect()
}

fn number_before(line: &str, word: &str) -> Option<u64> {
    line[..line.find(word)?].rsplit(' ').next()?.parse().ok()
}

/// Tests by how long they took.
#[derive(Debug, Default)]
pub struct Slowest(Vec<(f64, String)>);

impl Slowest {
    /// Adds the tests of a program of `package`. Those that waited for their turn say in `own` how long they took since it came:
    /// lines of seconds, a tab, and a name.
    pub fn add(&mut self, package: &str, output: &str, own: &str) {
        let own: HashMap<&str, f64> = own.lines().filter_map(of_own).collect();
        let tests = output.lines().filter_map(of_line);
        self.0.extend(
            tests.map(|(seconds, name)| {
                (own.get(name).copied().unwrap_or(seconds), format!("{package} {name}"))
            }),
        );
    }

    pub fn most(mut self, count: usize) -> impl Iterator<Item = (f64, String)> {
        self.0.sort_by(|a, b| b.0.total_cmp(&a.0));
        self.0.into_iter().take(count)
    }
}

fn of_line(line: &str) -> Option<(f64, &str)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let seconds = rest.rsplit_once('<')?.1.strip_suffix("s>")?.parse().ok()?;
    Some((seconds, name))
}

fn of_own(line: &str) -> Option<(&str, f64)> {
    let (seconds, name) = line.split_once('\t')?;
    Some((name, seconds.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 3 tests
test watch::a_series ... ok <1.250s>
test scale::many - should panic ... FAILED <12.000s>
test what::is_not_a_time ... ok

failures:

---- scale::many stdout ----
    it was too slow

failures:
    scale::many

test result: FAILED. 12 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 13.10s
";

    #[test]
    fn the_sums_of_all_programs_are_added_up() {
        let mut counts = Counts { passed: 1, failed: 0 };
        counts.add(Counts::of(OUTPUT));
        assert_eq!(counts, Counts { passed: 13, failed: 1 });
    }

    #[test]
    fn those_that_failed_are_the_list_before_the_sum() {
        assert_eq!(failed(OUTPUT), ["scale::many"]);
        assert_eq!(failed("test a ... ok\n\ntest result: ok. 1 passed; 0 failed"), [] as [&str; 0]);
    }

    #[test]
    fn the_slowest_tests_come_first_without_what_they_waited_for_and_those_without_a_time_not_at_all() {
        let mut slowest = Slowest::default();
        slowest.add("weir", OUTPUT, "0.500\twatch::a_series\nno line\n");
        let names: Vec<(f64, String)> = slowest.most(10).collect();
        let expected = [(12.0, "weir scale::many - should panic"), (0.5, "weir watch::a_series")];
        assert_eq!(names, expected.map(|(seconds, name)| (seconds, name.to_owned())));
    }
}
