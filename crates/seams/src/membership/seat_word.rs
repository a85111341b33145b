//! The newest that a seat has to say.

use super::SeatChange;

#[derive(Debug, Default)]
pub struct SeatWord {
    newest: Option<SeatChange>,
    told: bool,
}

impl SeatWord {
    /// What was said before and not heard is forgotten; after `Fenced` nothing counts.
    pub fn say(&mut self, change: SeatChange) {
        if self.fenced() || self.newest.as_ref() == Some(&change) {
            return;
        }
        self.newest = Some(change);
        self.told = false;
    }

    pub fn next(&mut self) -> Option<SeatChange> {
        if self.told {
            return None;
        }
        self.told = true;
        self.newest.clone()
    }

    pub fn held(&self) -> bool {
        self.newest == Some(SeatChange::Held)
    }

    pub fn fenced(&self) -> bool {
        matches!(self.newest, Some(SeatChange::Fenced { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_tells_its_newest_state_once_and_nothing_after_it_was_fenced() {
        let mut word = SeatWord::default();
        assert_eq!(word.next(), None);
        word.say(SeatChange::Held);
        word.say(SeatChange::Lapsed("away".to_owned()));
        assert_eq!((word.next(), word.next()), (Some(SeatChange::Lapsed("away".to_owned())), None));
        word.say(SeatChange::Held);
        word.say(SeatChange::Held);
        assert_eq!((word.next(), word.next()), (Some(SeatChange::Held), None));
        let fenced = SeatChange::Fenced { by: 9, why: "a later one".to_owned() };
        word.say(fenced.clone());
        word.say(SeatChange::Held);
        assert_eq!((word.next(), word.next()), (Some(fenced), None));
    }
}
