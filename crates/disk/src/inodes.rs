//! Which number the kernel knows which file by.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

pub const ROOT: u64 = 1;

/// A file by all of its names, which are paths below the disk's folder.
#[derive(Debug, Default)]
struct Known {
    paths: Vec<PathBuf>,
    /// The file's number in the file system below.
    below: u64,
    /// How often the kernel was told of it.
    told: u64,
}

/// Files by number. What is renamed keeps its number, and so does all below it; several names of one file are one number; a number
/// is never used again.
#[derive(Debug)]
pub struct Inodes {
    known: HashMap<u64, Known>,
    by_path: HashMap<PathBuf, u64>,
    by_number_below: HashMap<u64, u64>,
    next: u64,
}

impl Inodes {
    pub fn new() -> Inodes {
        let root = Known { paths: vec![PathBuf::new()], below: 0, told: 1 };
        Inodes {
            known: [(ROOT, root)].into(),
            by_path: [(PathBuf::new(), ROOT)].into(),
            by_number_below: HashMap::new(),
            next: ROOT + 1,
        }
    }

    /// One of its names. `None` for a file that has none any more.
    pub fn path(&self, number: u64) -> Option<&Path> {
        self.known.get(&number)?.paths.first().map(PathBuf::as_path)
    }

    pub fn child(&self, parent: u64, name: &OsStr) -> Option<PathBuf> {
        Some(self.path(parent)?.join(name))
    }

    /// The number of the file with this name, which is `below` in the file system below; told to the kernel one more time.
    pub fn tell(&mut self, path: &Path, below: u64) -> u64 {
        if self.by_path.get(path).is_some_and(|number| self.known[number].below != below) {
            self.removed(path); // by somebody who went around us
        }
        let number = *self.by_number_below.entry(below).or_insert_with(|| {
            self.next += 1;
            self.next - 1
        });
        let known = self.known.entry(number).or_default();
        known.below = below;
        known.told += 1;
        if self.by_path.insert(path.to_owned(), number) != Some(number) {
            known.paths.push(path.to_owned());
        }
        number
    }

    /// The kernel has forgotten it so many times.
    pub fn forget(&mut self, number: u64, times: u64) {
        let Some(known) = self.known.get_mut(&number).filter(|_| number != ROOT) else { return };
        known.told = known.told.saturating_sub(times);
        if known.told == 0
            && let Some(known) = self.known.remove(&number)
        {
            for path in known.paths {
                self.by_path.remove(&path);
            }
            if self.by_number_below.get(&known.below) == Some(&number) {
                self.by_number_below.remove(&known.below);
            }
        }
    }

    /// The name is gone. A file without names lives on by the handles of those that have it open.
    pub fn removed(&mut self, path: &Path) {
        let Some(number) = self.by_path.remove(path) else { return };
        let Some(known) = self.known.get_mut(&number) else { return };
        known.paths.retain(|own| own != path);
        if known.paths.is_empty() && self.by_number_below.get(&known.below) == Some(&number) {
            // Below, the next file may get the same number.
            self.by_number_below.remove(&known.below);
        }
    }

    pub fn renamed(&mut self, from: &Path, to: &Path) {
        self.removed(to);
        let moved: Vec<PathBuf> =
            self.by_path.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for path in moved {
            let Some(number) = self.by_path.remove(&path) else { continue };
            let below = path.strip_prefix(from).unwrap_or(Path::new(""));
            let new = if below.as_os_str().is_empty() { to.to_owned() } else { to.join(below) };
            for own in self.known.get_mut(&number).into_iter().flat_map(|known| &mut known.paths) {
                if *own == path {
                    own.clone_from(&new);
                }
            }
            self.by_path.insert(new, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_renamed_keeps_its_number_and_so_does_what_is_below_it() {
        let mut inodes = Inodes::new();
        let folder = inodes.tell(Path::new("a"), 10);
        let file = inodes.tell(Path::new("a/f"), 11);
        let other = inodes.tell(Path::new("ab"), 12);
        inodes.renamed(Path::new("a"), Path::new("b"));
        assert_eq!(inodes.path(folder), Some(Path::new("b")));
        assert_eq!(inodes.path(file), Some(Path::new("b/f")));
        assert_eq!(inodes.path(other), Some(Path::new("ab")));
        assert_eq!(inodes.tell(Path::new("b/f"), 11), file);
        inodes.forget(file, 1);
        assert!(inodes.path(file).is_some());
        inodes.forget(file, 1);
        assert_eq!(inodes.path(file), None);
    }

    #[test]
    fn names_of_one_file_are_one_number_and_a_number_is_not_used_again() {
        let mut inodes = Inodes::new();
        let file = inodes.tell(Path::new("a"), 10);
        assert_eq!(inodes.tell(Path::new("b"), 10), file);
        inodes.removed(Path::new("a"));
        assert_eq!(inodes.path(file), Some(Path::new("b")));
        inodes.removed(Path::new("b"));
        assert_eq!(inodes.path(file), None);
        // The file system below gives the number of a file that is gone to the next one.
        let next = inodes.tell(Path::new("a"), 10);
        assert_ne!(next, file);
        assert_ne!(inodes.tell(Path::new("a"), 13), next, "changed by others");
    }
}
