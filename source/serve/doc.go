// Package serve keeps any number of sources up to date with their origins
// for as long as it runs: it is to a set of objects what [source.Reconciler] is
// to one. A [Feed] says which objects there are to be, a constructor of origins
// where they come from; everything else is rules about when, and in which order.
// It does no logging and serves nothing.
//
// # When an object runs
//
//   - An object that is new, whose saved status is not that of its document, or
//     whose artifact is gone from the store runs at once. One whose saved status is
//     good runs some time within its interval: nothing is asked again because of a
//     restart, and a Secret that was rotated meanwhile counts then.
//   - Then it runs once in each interval, which is longer or shorter by a random
//     part, [Controller].Jitter at most. Objects with the same upstream (scheme,
//     host, path and credential) and interval have the same ticks, so that one
//     answer does for them ([source.Share]); a new one runs at once and then joins
//     them. When there are more objects than can run at a time, the first interval
//     is shorter, so that they are spread over it.
//   - It runs at once, or once more after the run under way, when its spec or one
//     of the annotations reconcile.headgate.dev/requestedAt and
//     reconcile.fluxcd.io/requestedAt changes, on [Controller.Request], when what it is
//     made of has another artifact, generation or readiness, and when a Secret that
//     its last run looked up, whether it was there or not, is another in a new
//     [Desired]. Any number of requests during a run make one more run.
//   - After a failure it is tried again after MinRetry, and each time after twice as
//     long, until MaxRetry or its interval; not before the upstream wants to be asked
//     ([source.Result].After). After a run that found something missing that it is made
//     of, in 30 s. A stalled object is not tried again before something changes.
//   - A suspended object does not run, by its spec or by [Controller.Suspend]. A run that
//     is under way ends first.
//
// Due times are of the monotonic clock: a date that jumps moves none. What people
// read, [View].Next and [Run].Started, is by Now.
//
// # In which order
//
// What an object is made of goes first when it is due or under way; the object is
// [Blocked] meanwhile, for one run of each that begins when the object is due: what is
// asked for without pause keeps no other back. Where objects need each other in a circle
// one demand is left out, as in [source.Order], so that none waits for ever, and all
// of them are stalled with an error that names the way. No object is run twice at once.
//
// Otherwise the host with the fewest runs under way is next, and within a host the object
// that is due first. At most Runs reconciliations are under way, PerHost of one host;
// at most Fetches contents are open, half of them from one host. Waiting for the latter
// is not charged against spec.timeout. No host gets more of either than twice as many as
// are free, and hosts whose last run failed have half of either together, so that hosts
// that stall do not hold up the others.
//
// # What an object is
//
// Each run works on a copy. What [View.Object] has, and origins find in [source.Sources],
// is the object as it was after its last run, and is never changed. A defect of one
// object, a panic of its origin included, is its own failure. Panics of Emit and
// Observe are dropped.
//
// An [source.ExternalArtifact] is never run. What is not in the feed any more is
// [Removed], and [Gone] with its artifacts after Retention; while the feed has
// defects it is taken for [View].Missing instead, and goes on as it was.
//
// An event that equals the last one of its object is not told again within Repeat; the
// next one has in its metadata how many there were ([RepeatedKey]). Traces all are.
//
// # What is saved
//
// The ledger has each object as its last run left it, or with the document that it
// has now when it is suspended.
//
// # Costs
//
// A change of one object costs the logarithm of how many are due; an idle object
// has no goroutine and no timer. [Controller.Stats], Views and, after changes, each
// watcher look at all of them. At most the last 1024 objects that are gone are kept
// for slow watchers; one that missed more gets [ErrBehind].
//
// # The end
//
// When the context of [Controller.Run] ends, runs are interrupted and record nothing,
// except those that have stored their artifact: they record that. Run returns when
// all of its goroutines have ended. An error of the feed ends it in the same way.
package serve
