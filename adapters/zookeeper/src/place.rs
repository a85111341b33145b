//! Where a group stands in ZooKeeper, and what is written there. What is read there was written by anyone.

use weir_seams::membership::{Group, MEMBER_BYTES_MAX, Member, MembershipError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Of the members' nodes.
    pub folder: String,
    /// No name has a point: this is nobody's folder of members.
    pub fences: String,
}

impl Place {
    /// Errors: `root` is no path, the group's names are none.
    pub fn new(root: &str, group: &Group) -> Result<Place, MembershipError> {
        group.check()?;
        let part = |part: &str| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && part.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let good =
            root.strip_prefix('/').is_some_and(|rest| rest.split('/').all(part)) && root != "/zookeeper";
        if !good || root.len() > 255 || root.starts_with("/zookeeper/") {
            return Err(MembershipError::new(format!(
                "root {root:?} is no place for members: write a path like \"/weir\", without / at its end and outside /zookeeper"
            )));
        }
        let folder = format!("{root}/{}/{}", group.run, group.role);
        let fences = format!("{folder}.fences");
        Ok(Place { folder, fences })
    }

    pub fn node(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }
    pub fn fence(&self, name: &str) -> String {
        format!("{}/{name}", self.fences)
    }
    /// The member whose node this is.
    pub fn name<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&self.folder)?.strip_prefix('/').filter(|name| !name.contains('/'))
    }
}

pub(crate) fn encode(member: &Member) -> Vec<u8> {
    serde_json::to_vec(member).unwrap_or_default() // names, numbers and JSON: nothing that could fail
}

/// Errors: why this is no member of that name.
pub(crate) fn decode(name: &str, data: &[u8]) -> Result<Member, String> {
    if data.len() > MEMBER_BYTES_MAX {
        return Err(format!("has {} bytes, and {MEMBER_BYTES_MAX} are allowed", data.len()));
    }
    let member: Member =
        serde_json::from_slice(data).map_err(|problem| format!("says nothing of a member: {problem}"))?;
    if member.name != name {
        return Err("says that it is another one".to_owned());
    }
    member.check().map_err(|problem| problem.text)?;
    Ok(member)
}

/// What cannot be read fences nobody: the next that takes the name writes it anew.
pub(crate) fn decode_fence(data: &[u8]) -> u64 {
    std::str::from_utf8(data).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Group {
        Group { run: "r1".to_owned(), role: "builders".to_owned() }
    }

    #[test]
    fn a_root_that_is_no_path_is_refused_in_words() {
        let place = Place::new("/weir/test", &group()).unwrap();
        assert_eq!(place.node("b-0"), "/weir/test/r1/builders/b-0");
        assert_eq!(place.fence("b-0"), "/weir/test/r1/builders.fences/b-0");
        for root in
            ["", "/", "weir", "/weir/", "//weir", "/weir/..", "/a b", "/zookeeper", "/zookeeper/x", "/ü"]
        {
            let refused = Place::new(root, &group()).unwrap_err();
            assert!(refused.text.contains("write a path like"), "{root:?}: {refused}");
        }
    }

    // Spec: membership.md#zookeeper-1
    #[test]
    fn only_nodes_right_below_the_folder_are_members() {
        let place = Place::new("/weir", &group()).unwrap();
        assert_eq!(place.name("/weir/r1/builders/b-0"), Some("b-0"));
        for path in ["/weir/r1/builders", "/weir/r1/builders/b-0/x", "/weir/r1/builders.fences/b-0", "/other"]
        {
            assert_eq!(place.name(path), None, "{path}");
        }
    }

    // Spec: membership.md#zookeeper-3
    #[test]
    fn what_is_read_is_the_member_that_was_written_and_anything_else_is_none() {
        let details = serde_json::json!({ "memory_bytes": u64::MAX });
        let member = Member {
            name: "b-0".to_owned(),
            incarnation: u64::MAX,
            address: "[::1]:4000".to_owned(),
            details,
        };
        assert_eq!(decode("b-0", &encode(&member)), Ok(member.clone()));
        assert!(decode("b-1", &encode(&member)).unwrap_err().contains("another one"));
        assert!(decode("b-0", &vec![b' '; MEMBER_BYTES_MAX + 1]).unwrap_err().contains("bytes"));
        for data in [&b""[..], b"{}", b"\xff", b"[[[[", br#"{"name":"b-0","incarnation":-1,"address":""}"#] {
            assert!(decode("b-0", data).unwrap_err().contains("says nothing of a member"), "{data:?}");
        }
        assert_eq!(
            (decode_fence(b"17"), decode_fence(b"x"), decode_fence(b"\xff"), decode_fence(b"")),
            (17, 0, 0, 0)
        );
    }
}
