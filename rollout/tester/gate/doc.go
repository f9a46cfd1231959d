// Package gate keeps the gates and rollback switches of canaries, so that they
// survive whatever ends the process.
//
// A [Book] holds all of them in memory and, when it has a directory, in the
// file gates.db there, which one process at a time may have open.
//
// Changes. What a method acknowledges is on disk: an opening, a closing, a
// rejection, the use of a one-shot opening, a link that was used. A check sees
// a change once it is on disk and not before, so that nothing passes on what a
// crash takes back. Changes made at the same time share one write. When a
// write fails, the changes of it are refused and nothing has changed; what it left in the
// file all the same is written over before the next change, and within seconds.
//
// Checks. A check that changes nothing touches no disk. Who waits is written a
// few seconds later, with what else came by then, and when the book is closed:
// a crash loses those seconds.
//
//	mode       check with the checksum   with another   without one
//	sticky     passes                    passes         passes
//	checksum   passes                    refused        refused
//	one-shot   the first that passes binds the opening to its checksum:
//	           passes                    closes it      refused
//	           a first one without checksum passes and closes it
//
// Who is rejected waits no more, until its next check is refused. A wait that was
// not asked for again within two intervals, the longest time between two of its
// checks or a second, is stale: its caller does not ask any more.
//
// An opening with a time to live closes by the clock, also while the process
// is down.
//
// Bounds. Of gates that were only ever checked [Config].MaxKeys are known, the
// longest idle are forgotten first. As many may be open or closed by somebody's
// decision: of those, closed ones that nobody waits for are forgotten after
// a week, and earlier, the oldest first, when there are too many; since closed
// is what an unknown gate is, that changes no verdict. When too many are open, one more
// is an error.
//
// Parts of a key have at most 253 bytes of UTF-8 without control characters.
// Namespace and name may be empty, as a payload may leave them out.
package gate
