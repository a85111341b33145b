//! All recipes: those of this program, and folders beside a scenario.

use crate::error::ServiceError;
use crate::recipe::Recipe;
use crate::template::{address, shares_disks};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use weir_core::scenario::{Service, SystemSchema, Systems};
use weir_core::topology::Topology;

/// A recipe that is built in: its name, `system.toml`, and its templates by name.
pub struct Builtin {
    pub name: &'static str,
    pub recipe: &'static str,
    pub templates: &'static [(&'static str, &'static str)],
}

const RECIPE: &str = "system.toml";
/// Of a recipe or a template: texts, not data.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Recipes by name or folder. Each is read once, and kept as long as the program lives.
pub struct Library {
    builtin: &'static [Builtin],
    /// What folders of recipes are relative to.
    folder: PathBuf,
    read: RefCell<BTreeMap<String, &'static Recipe>>,
}

impl fmt::Debug for Library {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Library({}, {})", self.names().join(", "), self.folder.display())
    }
}

impl Library {
    /// `folder` is the scenario's.
    pub fn new(builtin: &'static [Builtin], folder: &Path) -> Library {
        Library { builtin, folder: folder.to_owned(), read: RefCell::default() }
    }

    /// A name, or a folder beginning with `./`, `../` or `/`.
    ///
    /// Errors: there is none, or it cannot be used.
    pub fn recipe(&self, name: &str) -> Result<&'static Recipe, ServiceError> {
        if let Some(recipe) = self.read.borrow().get(name) {
            return Ok(recipe);
        }
        let is_folder = ["./", "../", "/"].iter().any(|begin| name.starts_with(begin));
        let recipe = if is_folder { self.beside(name)? } else { self.own(name)? };
        self.read.borrow_mut().insert(name.to_owned(), recipe);
        Ok(recipe)
    }

    fn own(&self, name: &str) -> Result<&'static Recipe, ServiceError> {
        static OWN: OnceLock<std::sync::Mutex<BTreeMap<&'static str, &'static Recipe>>> = OnceLock::new();
        let Some(builtin) = self.builtin.iter().find(|builtin| builtin.name == name) else {
            let text = format!("no system is called {:?}", weir_core::text::shown(name, 60));
            return Err(ServiceError::Recipe { file: "system".to_owned(), text });
        };
        let mut own =
            OWN.get_or_init(Default::default).lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(recipe) = own.get(builtin.name) {
            return Ok(recipe);
        }
        let file = format!("systems/{}/{RECIPE}", builtin.name);
        let templates = builtin.templates.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let recipe: &'static Recipe =
            Box::leak(Box::new(Recipe::read(builtin.name, &file, builtin.recipe, templates.collect())?));
        own.insert(builtin.name, recipe);
        Ok(recipe)
    }

    fn beside(&self, name: &str) -> Result<&'static Recipe, ServiceError> {
        let folder = self.folder.join(name);
        let file = folder.join(RECIPE);
        let shown = file.display().to_string();
        let wrong = |path: &Path, error: std::io::Error| ServiceError::Recipe {
            file: path.display().to_string(),
            text: format!("the recipe of system {name:?} cannot be read: {error}"),
        };
        let text = read_text(&file).map_err(|error| wrong(&file, error))?;
        let mut templates = BTreeMap::new();
        for entry in fs::read_dir(&folder).map_err(|error| wrong(&folder, error))? {
            let path = entry.map_err(|error| wrong(&folder, error))?.path();
            let own_name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            if let Some(own_name) = own_name.filter(|own| own != RECIPE && path.is_file()) {
                templates.insert(own_name, read_text(&path).map_err(|error| wrong(&path, error))?);
            }
        }
        // Options are set by the folder's own name: a path would be a clumsy key.
        let short = folder.file_name().and_then(|name| name.to_str()).unwrap_or(name);
        Ok(Box::leak(Box::new(Recipe::read(short, &shown, &text, templates)?)))
    }

    /// The recipes of this program.
    pub fn all(&self) -> Result<Vec<&'static Recipe>, ServiceError> {
        self.builtin.iter().map(|builtin| self.recipe(builtin.name)).collect()
    }
}

fn read_text(path: &Path) -> std::io::Result<String> {
    if fs::metadata(path)?.len() > FILE_BYTES_MAX {
        return Err(std::io::Error::other(format!("it is larger than {FILE_BYTES_MAX} B")));
    }
    fs::read_to_string(path)
}

impl Systems for Library {
    fn find(&self, name: &str) -> Result<&'static SystemSchema, String> {
        // Options of a folder's engine are called by the folder's last name.
        let read = self.read.borrow().values().find(|recipe| recipe.schema.name == name).copied();
        match read {
            Some(recipe) => Ok(&recipe.schema),
            None => self.recipe(name).map(|recipe| &recipe.schema).map_err(|error| match error {
                ServiceError::Recipe { file, text } if file == "system" => text,
                other => other.to_string(),
            }),
        }
    }
    fn address(&self, service: &Service, topology: &Topology) -> Result<String, String> {
        let recipe = self.recipe(&service.system).map_err(|error| error.to_string())?;
        let has_one = service.disk.as_ref().is_none_or(|disk| disk.count == 1);
        if !has_one && shares_disks(service, recipe).map_err(|error| error.to_string())? {
            return Err(format!(
                "servers of {} that share their storage have one disk each, of one array",
                service.name
            ));
        }
        address(service, recipe, topology).map_err(|error| error.to_string())
    }
    fn names(&self) -> Vec<String> {
        self.builtin.iter().map(|builtin| builtin.name.to_owned()).collect()
    }
}
