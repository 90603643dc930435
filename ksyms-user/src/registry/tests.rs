use std::collections::{BTreeMap, HashMap};

use ksyms_ebpf::registry::{bucket, chain_len};
use proptest::prelude::*;

use super::{Buckets, Registry, RegistryError, check_count};

const TEXT: u64 = 0xffff_ffff_8100_0000;
const DISTANCES: [u64; 5] = [0, 1, 4, 5, 9];

fn buckets() -> impl Iterator<Item = Buckets> {
    (0..=16).map(|bits| Buckets::new(1 << bits).unwrap())
}

/// `count` functions as a linker lays them out: at lines of 16 bytes, of 16 to
/// 2,048 bytes, in no order.
fn functions(count: u64) -> Vec<u64> {
    let mut address = TEXT;
    let mut functions: Vec<_> = (0..count)
        .map(|index| {
            let random = (index + 1).wrapping_mul(0xd120_4f3a_96f1_5a5b) >> 40;
            address += 16 * (1 + ((random * random) >> 41));
            address
        })
        .collect();
    functions.sort_unstable_by_key(|address| address.swap_bytes());
    functions
}

/// `count` addresses at the starts of lines, all in bucket 0 of up to 2^12:
/// the hash undone for values below 2^52.
fn colliding(count: u64) -> Vec<u64> {
    const INVERSE: u64 = {
        // Newton's iteration, which doubles the bits that are right.
        let golden: u64 = 0x61c8_8646_80b5_83eb;
        let mut inverse: u64 = golden;
        let mut step = 0;
        while step < 5 {
            inverse = inverse.wrapping_mul(2_u64.wrapping_sub(golden.wrapping_mul(inverse)));
            step += 1;
        }
        inverse
    };
    (0..count).map(|n| (16 * n).wrapping_mul(INVERSE)).collect()
}

/// Every address is there under its own slot, and found: each `step`th is tried.
fn holds(registry: &Registry, addresses: &[u64], step: usize) {
    for (slot, &address) in (0_u32..).zip(addresses).step_by(step) {
        assert_eq!(registry.lookup(address), Some(slot), "{address:#x}");
        assert_eq!(registry.lookup_hit(address), Some(slot), "{address:#x}");
    }
    let mut entries: Vec<_> = registry.slots().iter().zip(registry.addresses()).collect();
    entries.sort_unstable();
    let entries = entries.into_iter();
    assert!(entries.map(|(_, address)| address).eq(addresses));
}

#[test]
fn an_empty_registry_holds_nothing() {
    for buckets in buckets() {
        let registry = Registry::build(&[], buckets).unwrap();
        for address in [0, 9, TEXT, u64::MAX] {
            assert_eq!(registry.lookup_counted(address), (None, 0));
            assert_eq!(registry.lookup_hit(address), None);
        }
        let stats = registry.stats();
        assert_eq!((stats.addresses, stats.longest_chain), (0, 0));
        assert_eq!(stats.hit_comparisons, None);
        assert_eq!(stats.bytes, 8 * buckets.count() as usize);
    }
}

#[test]
fn one_address_is_found_at_each_reported_distance_and_no_other() {
    for address in [0, 16, TEXT, TEXT + 7, TEXT + 15, u64::MAX - 100] {
        for buckets in buckets() {
            let registry = Registry::build(&[address], buckets).unwrap();
            assert_eq!(registry.lookup_counted(address), (Some(0), 1));
            for distance in 0..100 {
                let ip = address + distance;
                let hit = DISTANCES.contains(&distance).then_some(0);
                assert_eq!(registry.lookup_hit(ip), hit, "{address:#x} + {distance}");
                assert_eq!(registry.lookup(ip).is_some(), distance == 0);
            }
            assert_eq!(registry.lookup_hit(address.wrapping_sub(1)), None);
            assert_eq!(registry.lookup_hit(address.wrapping_sub(16)), None);
        }
    }
}

#[test]
fn fifty_thousand_are_found_in_any_number_of_buckets() {
    let addresses = functions(50_000);
    for buckets in buckets() {
        let registry = Registry::build(&addresses, buckets).unwrap();
        // Fewer where chains are long.
        let step = (1 << 12 >> buckets.bits()).max(1);
        holds(&registry, &addresses, step);
        for address in addresses.iter().step_by(7 * step) {
            assert_eq!(registry.lookup(address + 4), None);
            assert_eq!(registry.lookup_hit(address + 4), registry.lookup(*address));
            assert_eq!(registry.lookup_hit(address + 8), None);
        }
    }
}

#[test]
fn slots_are_those_of_the_input_and_its_order_changes_nothing_else() {
    let addresses = functions(1_000);
    let reversed: Vec<_> = addresses.iter().rev().copied().collect();
    let one = Registry::build(&addresses, Buckets::default()).unwrap();
    let other = Registry::build(&reversed, Buckets::default()).unwrap();
    assert_eq!(one.heads(), other.heads());
    assert_eq!(one.addresses(), other.addresses());
    assert!(
        one.slots()
            .iter()
            .zip(other.slots())
            .all(|(a, b)| a + b == 999)
    );
}

#[test]
fn all_in_one_bucket_is_slow_but_right() {
    let addresses = colliding(2_000);
    let registry = Registry::build(&addresses, Buckets::default()).unwrap();
    holds(&registry, &addresses, 1);
    let stats = registry.stats();
    assert_eq!(stats.longest_chain, 2_000);
    assert_eq!(stats.hit_comparisons, Some(1_000.5));
    let lowest = *addresses.iter().min().unwrap();
    assert_eq!(registry.lookup_counted(lowest).1, 2_000);
}

/// Alone in its line each would be found at + 4, + 5 and + 9, and that is what
/// its neighbour takes over.
#[test]
fn neighbours_are_not_confused() {
    for lower in TEXT..TEXT + 16 {
        let registry = Registry::build(&[lower, lower + 4], Buckets::default()).unwrap();
        let hits = |from: u64| DISTANCES.map(|distance| registry.lookup_hit(from + distance));
        assert_eq!(hits(lower), [Some(0), Some(0), Some(1), Some(1), Some(1)]);
        assert_eq!(hits(lower + 4), [Some(1); 5]);
        assert_eq!(registry.lookup_hit(lower + 2), None);

        // Inside the upper one, which reports nothing there.
        let registry = Registry::build(&[lower, lower + 3], Buckets::default()).unwrap();
        assert_eq!(registry.lookup_hit(lower + 5), None);
        assert_eq!(registry.lookup_hit(lower + 9), None);
        assert_eq!(registry.lookup_hit(lower + 4), Some(1));
    }
}

/// What eBPF programs read: whoever changes this changes them.
#[test]
fn the_layout_is_fixed() {
    let addresses = [TEXT, TEXT + 0xa30, TEXT + 0xa34, TEXT + 0x70, TEXT + 0x50];
    let registry = Registry::build(&addresses, Buckets::new(4).unwrap()).unwrap();
    let bytes = registry.to_bytes();
    let words = |bytes: &[u8]| -> Vec<u64> {
        let words = bytes.chunks_exact(8);
        words
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
            .collect()
    };
    assert_eq!(
        words(&bytes.heads),
        [0x3_00000000, 0, 0x1_00000003, 0x1_00000004]
    );
    assert_eq!(
        words(&bytes.addresses),
        [TEXT + 0xa34, TEXT + 0xa30, TEXT, TEXT + 0x50, TEXT + 0x70]
    );
    let slots: Vec<_> = bytes.slots.chunks_exact(4).collect();
    assert_eq!(slots, [2_u32, 1, 0, 4, 3].map(u32::to_ne_bytes));
    assert_eq!(
        registry.stats().bytes,
        bytes.heads.len() + bytes.addresses.len() + bytes.slots.len()
    );
}

#[test]
fn heads_of_4096_buckets_are_32_kib() {
    let registry = Registry::build(&functions(388), Buckets::default()).unwrap();
    assert_eq!(registry.to_bytes().heads.len(), 32 << 10);
    assert_eq!(registry.stats().bytes, (32 << 10) + 388 * 12);
}

#[test]
fn duplicates_are_named() {
    let mut addresses = functions(300);
    addresses[211] = addresses[17];
    let error = Registry::build(&addresses, Buckets::default()).unwrap_err();
    let address = addresses[17];
    assert_eq!(
        error,
        RegistryError::Duplicate {
            address,
            first: 17,
            second: 211
        }
    );
    assert_eq!(
        error.to_string(),
        format!(
            "address {address:#x} is given twice, for slots 17 and 211: a function has one probe, however many names it has, so give each address once"
        )
    );
    assert!(Registry::build(&[0, 0], Buckets::new(1).unwrap()).is_err());
}

#[test]
fn more_than_can_be_numbered_are_refused() {
    assert_eq!(check_count(u32::MAX as usize), Ok(()));
    assert_eq!(
        check_count(1 << 32).unwrap_err().to_string(),
        "4294967296 functions are more than can be numbered, 4294967295: choose fewer"
    );
}

#[test]
fn buckets_are_powers_of_two() {
    for count in [0, 3, 4_095, 65_537, 131_072, u32::MAX] {
        let error = Buckets::new(count).unwrap_err().to_string();
        let expected =
            format!("`{count}` buckets cannot be had: give a power of two from 1 to 65536");
        assert_eq!(error, expected);
    }
    assert_eq!(Buckets::new(1).unwrap().count(), 1);
    assert_eq!(Buckets::default().count(), 4_096);
    for text in ["64", "4096", "65536"] {
        assert_eq!(text.parse::<Buckets>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "0",
        "32",
        "63",
        "100",
        "131072",
        "-64",
        "4k",
        "18446744073709551616",
    ] {
        let error = text.parse::<Buckets>().unwrap_err().to_string();
        let expected =
            format!("`{text}` buckets cannot be had: give a power of two from 64 to 65536");
        assert_eq!(error, expected);
    }
}

/// The means are those of all lookups there are.
#[test]
fn stats_are_what_lookups_cost() {
    // In one bucket: a gap between any two, before the first, behind the last.
    let addresses: Vec<_> = (1..=9).map(|n| 16 * n).collect();
    let registry = Registry::build(&addresses, Buckets::new(1).unwrap()).unwrap();
    let mean = |lookups: &[u64]| {
        let compared = lookups
            .iter()
            .map(|&a| f64::from(registry.lookup_counted(a).1));
        compared.sum::<f64>() / lookups.iter().map(|_| 1.0).sum::<f64>()
    };
    let stats = registry.stats();
    let gaps: Vec<_> = (0..=9).map(|n| 16 * n + 8).collect();
    assert!((stats.hit_comparisons.unwrap() - mean(&addresses)).abs() < 1e-9);
    assert!((stats.miss_comparisons - mean(&gaps)).abs() < 1e-9);
    assert!((stats.load - 9.0).abs() < 1e-9);
    assert_eq!(
        stats.to_string(),
        "9 functions in 1 buckets: load 9.00, longest chain 9, mean comparisons 5.00 of a hit, 5.40 of a miss; 1 KiB"
    );

    // In many: the longest chain is the most that is ever compared.
    let addresses = functions(5_000);
    let registry = Registry::build(&addresses, Buckets::KPROBES).unwrap();
    let stats = registry.stats();
    let compared = |&a: &u64| registry.lookup_counted(a).1;
    assert_eq!(
        addresses.iter().map(compared).max(),
        Some(stats.longest_chain)
    );
    let total: u32 = addresses.iter().map(compared).sum();
    assert!((stats.hit_comparisons.unwrap() - f64::from(total) / 5_000.0).abs() < 1e-9);
    let empty = Registry::build(&[], Buckets::KPROBES).unwrap().stats();
    assert_eq!(
        empty.to_string(),
        "0 functions in 64 buckets: load 0.00, longest chain 0, mean comparisons 0.00 of a miss; 1 KiB"
    );
}

/// A mask over the low bits, which functions at lines of 16 bytes leave alone,
/// would fill a sixteenth of the buckets. The hash is held to the mean of hits
/// that chance would give, 1 + load / 2. Functions at regular steps are another
/// matter: most steps do better than chance, one of 112 bytes 3.5 times as badly.
#[test]
fn aligned_addresses_spread_as_if_by_chance() {
    for count in [388, 5_000, 20_000, 50_000] {
        let close = |addresses: &[u64], factor: f64| {
            let stats = Registry::build(addresses, Buckets::default())
                .unwrap()
                .stats();
            let hit = stats.hit_comparisons.unwrap();
            assert!(hit < factor * (1.0 + stats.load / 2.0), "{count}: {stats}");
        };
        close(&functions(count), 1.1);
        for step in [16, 32, 48, 64, 96, 112, 256, 4_096] {
            let regular: Vec<_> = (0..count).map(|n| TEXT + step * n).collect();
            close(&regular, 3.6);
        }
    }
}

/// Addresses that crowd a few lines, here and at both ends of all there are.
fn any_addresses() -> impl Strategy<Value = Vec<u64>> {
    let address = prop_oneof![
        (0_u64..400).prop_map(|offset| TEXT + offset),
        (0_u64..200_000).prop_map(|offset| TEXT + 16 * offset),
        0_u64..64,
        (0_u64..64).prop_map(|offset| u64::MAX - offset),
        any::<u64>(),
    ];
    prop::collection::hash_set(address, 0..600)
        .prop_map(|addresses| addresses.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Against maps, at each address and around it.
    #[test]
    fn any_registry_agrees_with_maps(addresses in any_addresses(), bits in 0_u32..=16) {
        let registry = Registry::build(&addresses, Buckets::new(1 << bits).unwrap()).unwrap();
        let slots: HashMap<u64, u32> = addresses.iter().copied().zip(0..).collect();
        let sorted: BTreeMap<u64, u32> = addresses.iter().copied().zip(0..).collect();
        let longest = registry.stats().longest_chain;
        for &address in &addresses {
            for offset in 0_u64..40 {
                let ip = address.wrapping_add(offset).wrapping_sub(20);
                let (slot, comparisons) = registry.lookup_counted(ip);
                prop_assert_eq!(slot, slots.get(&ip).copied());
                prop_assert!(comparisons <= longest);
                let nearest = sorted.range(..=ip).next_back();
                let hit = nearest.filter(|&(start, _)| DISTANCES.contains(&(ip - start)));
                prop_assert_eq!(registry.lookup_hit(ip), hit.map(|(_, &slot)| slot));
            }
        }
    }

    /// The heads part the entries, and each is in its bucket, in order.
    #[test]
    fn any_layout_is_whole(addresses in any_addresses(), bits in 0_u32..=16) {
        let registry = Registry::build(&addresses, Buckets::new(1 << bits).unwrap()).unwrap();
        let mut end = 0;
        for (number, &head) in (0..).zip(registry.heads()) {
            let chain = super::chain(head);
            if chain_len(head) == 0 {
                prop_assert_eq!(head, 0);
                continue;
            }
            prop_assert_eq!(chain.start, end);
            end = chain.end;
            let chain = &registry.addresses()[chain];
            prop_assert!(chain.is_sorted_by(|one, next| one > next));
            prop_assert!(chain.iter().all(|&address| bucket(address, bits) == number));
        }
        prop_assert_eq!(end, addresses.len());
    }

    #[test]
    fn any_duplicate_is_named(addresses in any_addresses(), which in any::<(prop::sample::Index, prop::sample::Index)>()) {
        prop_assume!(!addresses.is_empty());
        let mut addresses = addresses;
        let address = *which.0.get(&addresses);
        addresses.insert(which.1.index(addresses.len()), address);
        let at: Vec<_> = (0..).zip(&addresses).filter(|&(_, &a)| a == address).map(|(slot, _)| slot).collect();
        prop_assert_eq!(
            Registry::build(&addresses, Buckets::default()),
            Err(RegistryError::Duplicate { address, first: at[0], second: at[1] })
        );
    }
}
