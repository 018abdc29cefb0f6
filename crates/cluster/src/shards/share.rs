//! Decides who should hold which shards: from what a replica sees of the Leases to its next actions.

use std::collections::{BTreeMap, BTreeSet};

/// The holder of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// Free: never taken, freed, or its holder is dead.
    Nobody,
    /// Ours.
    Me,
    /// Ours, until the work in flight in it has ended.
    Leaving,
    /// A replica that is alive.
    Other(String),
}

/// What one replica sees of all shards.
#[derive(Debug)]
pub(super) struct Sight {
    pub(super) shards: Vec<Holder>,
    /// The one whose Lease stands for all of ours; it is never given away.
    pub(super) anchor: Option<usize>,
    /// Another replica that has less than its share, and asks us for more.
    pub(super) asks_us: Option<String>,
    /// This replica has just freed shards for another one, which needs a moment to notice and take them.
    pub(super) has_just_freed: bool,
    /// Where this replica begins to take shards: replicas begin at different places.
    pub(super) begin: usize,
}

/// What the replica does next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moves {
    pub(super) take: Vec<usize>,
    pub(super) give: Vec<usize>,
    /// The replica that it asks for more.
    pub(super) ask: Option<String>,
}

/// Everybody gets the same number, plus or minus one.
pub(super) fn moves(sight: &Sight) -> Moves {
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    for holder in &sight.shards {
        if let Holder::Other(other) = holder {
            *others.entry(other).or_default() += 1;
        }
    }
    let mut replicas: BTreeSet<&str> = others.keys().copied().collect();
    replicas.extend(sight.asks_us.as_deref());
    let replicas = replicas.len() + 1;
    let (least, most) = (
        sight.shards.len() / replicas,
        sight.shards.len().div_ceil(replicas),
    );
    let mine = sight.all(&Holder::Me);
    let mut moves = Moves::default();
    if sight.asks_us.is_some() && mine.len() > least {
        let spare = mine.iter().copied().filter(|shard| Some(*shard) != sight.anchor);
        let surplus = mine.len().saturating_sub(most).max(1);
        moves.give = spare.rev().take(surplus).collect();
        return moves;
    }
    if sight.has_just_freed {
        return moves;
    }
    let free = sight.all(&Holder::Nobody);
    moves.take = free
        .iter()
        .copied()
        .take(most.saturating_sub(mine.len()))
        .collect();
    if free.is_empty() && mine.len() < least {
        let richest = others.iter().max_by_key(|(_, count)| **count);
        moves.ask = richest
            .filter(|(_, count)| **count > least)
            .map(|(name, _)| (*name).to_owned());
    }
    moves
}

impl Sight {
    /// The shards of a holder, in the order in which this replica takes them.
    fn all(&self, holder: &Holder) -> Vec<usize> {
        let count = self.shards.len();
        (0..count)
            .map(|step| (self.begin + step) % count)
            .filter(|shard| self.shards[*shard] == *holder)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `-` is free, `m` ours, `l` being left by us; other letters are other replicas.
    fn sight(shards: &str) -> Sight {
        let holder = |letter| match letter {
            '-' => Holder::Nobody,
            'm' => Holder::Me,
            'l' => Holder::Leaving,
            other => Holder::Other(other.to_string()),
        };
        Sight {
            shards: shards.chars().map(holder).collect(),
            anchor: shards.find('m'),
            asks_us: None,
            has_just_freed: false,
            begin: 0,
        }
    }

    fn takes(shards: &str, expected: &[usize]) {
        assert_eq!(moves(&sight(shards)).take, expected, "{shards}");
    }

    fn gives(shards: &str, expected: &[usize]) {
        let mut sight = sight(shards);
        sight.asks_us = Some("z".to_owned());
        let moves = moves(&sight);
        assert_eq!((moves.give.as_slice(), moves.ask), (expected, None), "{shards}");
    }

    fn asks(shards: &str, expected: Option<&str>) {
        assert_eq!(moves(&sight(shards)).ask.as_deref(), expected, "{shards}");
    }

    #[test]
    fn what_is_free_is_taken_up_to_a_fair_share() {
        takes("----", &[0, 1, 2, 3]);
        takes("m---", &[1, 2, 3]);
        takes("aa--", &[2, 3]);
        takes("aaaa", &[]);
        takes("a---", &[1, 2]);
        takes("aab-----", &[3, 4, 5]);
        takes("mmmm", &[]);
    }

    #[test]
    fn replicas_that_start_at_once_begin_in_different_places() {
        let mut sight = sight("----");
        sight.begin = 2;
        assert_eq!(moves(&sight).take, [2, 3, 0, 1]);
    }

    #[test]
    fn who_is_asked_gives_down_to_a_fair_share_and_never_the_anchor() {
        gives("mmmm", &[3, 2]);
        gives("mmll", &[]);
        gives("mmmmaaaa", &[3]);
        gives("mmmaaazz", &[2]);
        gives("mm", &[1]);
        gives("m", &[]);
    }

    #[test]
    fn what_was_freed_for_another_replica_is_not_taken_back_at_once() {
        let mut sight = sight("mm--");
        sight.has_just_freed = true;
        assert_eq!(moves(&sight), Moves::default());
    }

    #[test]
    fn who_has_too_little_asks_who_has_most() {
        asks("aaaa", Some("a"));
        asks("aaabbm", Some("a"));
        asks("aabbmm", None);
        asks("aaa-", None);
        // With more replicas than shards, one waits.
        asks("ab", None);
    }

    /// Replicas that take turns reach an even share, whoever joins.
    #[test]
    fn turns_end_with_an_even_share() {
        for (count, replicas) in [(8, 1), (8, 2), (8, 3), (7, 3), (3, 3), (2, 3), (16, 5)] {
            let mut shards = vec![None::<usize>; count];
            let mut asked: Option<(usize, usize)> = None;
            for turn in 0..200 {
                let me = turn % replicas.min(turn / 20 + 1);
                let seen = shards.iter().map(|holder| match holder {
                    None => Holder::Nobody,
                    Some(holder) if *holder == me => Holder::Me,
                    Some(other) => Holder::Other(other.to_string()),
                });
                let asks_us = asked.filter(|(of, _)| *of == me).map(|(_, who)| who.to_string());
                let sight = Sight {
                    shards: seen.collect(),
                    anchor: shards.iter().position(|holder| *holder == Some(me)),
                    asks_us: asks_us.clone(),
                    has_just_freed: false,
                    begin: me,
                };
                let Moves { take, give, ask } = moves(&sight);
                for shard in take {
                    shards[shard] = Some(me);
                }
                for shard in give {
                    shards[shard] = None;
                }
                if asks_us.is_some() {
                    asked = None;
                }
                if let Some(of) = ask {
                    asked = Some((of.parse().unwrap(), me));
                }
            }
            let held = |replica| shards.iter().filter(|holder| **holder == Some(replica)).count();
            let counts: Vec<usize> = (0..replicas).map(held).collect();
            let (least, most) = (count / replicas, count.div_ceil(replicas));
            assert!(
                counts.iter().all(|held| (least..=most).contains(held)),
                "{count} shards, {replicas} replicas: {counts:?}"
            );
        }
    }
}
