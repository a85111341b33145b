//! The newest that a seat has to say.

use super::SeatChange;

#[derive(Debug, Default)]
pub struct SeatWord {
    newest: Option<SeatChange>,
    told: bool,
}

impl SeatWord {
    /// What was said before and not heard is forgotten; after `Fenced` nothing counts. True if this is new.
    pub fn say(&mut self, change: SeatChange) -> bool {
        if self.fenced() || self.newest.as_ref() == Some(&change) {
            return false;
        }
        self.newest = Some(change);
        self.told = false;
        true
    }

    pub fn tell(&mut self) -> Option<SeatChange> {
        if self.told {
            return None;
        }
        self.told = true;
        self.newest.clone()
    }

    fn fenced(&self) -> bool {
        matches!(self.newest, Some(SeatChange::Fenced { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_tells_its_newest_state_once_and_nothing_after_it_was_fenced() {
        let mut word = SeatWord::default();
        assert_eq!(word.tell(), None);
        word.say(SeatChange::Held);
        word.say(SeatChange::Lapsed("away".to_owned()));
        assert_eq!((word.tell(), word.tell()), (Some(SeatChange::Lapsed("away".to_owned())), None));
        assert!(word.say(SeatChange::Held));
        assert!(!word.say(SeatChange::Held));
        assert_eq!((word.tell(), word.tell()), (Some(SeatChange::Held), None));
        let fenced = SeatChange::Fenced { by: 9, why: "a later one".to_owned() };
        word.say(fenced.clone());
        assert!(!word.say(SeatChange::Held));
        assert_eq!((word.tell(), word.tell()), (Some(fenced), None));
    }
}
