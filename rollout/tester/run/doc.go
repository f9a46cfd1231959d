// Package run executes tasks: one process for as many equal requests as come,
// with bounded output, a history that survives the process, and an end.
//
// # Equal requests
//
// Requests are equal when they agree in namespace, name, checksum, type and
// metadata. Of equal requests one task is under way at a time, however many
// there are and whoever asks for it.
//
// [Desk.Wait] answers with how a run ends. A caller that goes away before does
// not end it: when the request has a checksum the verdict is kept, and given to
// the next equal Wait. It is given until [Desk.Deliver] says that a caller
// received it: two callers that come before that both get it, and no second task
// is started for either. After that the next Wait starts anew.
//
// [Desk.Start] answers at once. While an equal run is under way it returns that
// one, and starts a new one when it has ended. Only when it failed or timed out
// and was asked for with FailOnError, the failure is the answer to the next
// equal request of the same checksum, until it is delivered.
//
// A verdict is kept for Config.Verdict at most, since what was tested changes.
// Without a checksum it is not kept at all: the next request may be about another
// revision. It is kept only if the run came to
// its end by itself or by its timeout. One that was cancelled, stopped by a
// shutdown or lost with the process says nothing of what was tested: who waits
// for it is told, the next equal request starts anew. While a cancelled task has
// not returned yet it counts as under way, so that it never meets its successor.
//
// # Output
//
// Secrets of the request are masked, however the task cuts what it writes, and
// what is not UTF-8 is replaced, before anybody sees it or it is kept. Half of
// the limit is for the beginning and half for the end; a line between them says
// how many bytes were left out. A follower that is slower than the task misses
// what fell out of these halves before it came to it, and is told so in the same
// way; the task waits for nobody.
//
// # History
//
// What happens to runs is written to disk behind their backs, in batches which
// follow each other without a pause: no request waits for the disk. So a process
// that is killed loses the last few milliseconds. A run that was started within
// them is not found again, one that ended within them is found as [api.Lost],
// and a verdict that was delivered within them may be given once more. Nothing
// else is lost: runs that were under way are found as Lost, and verdicts which
// nobody received are given to the next equal request of the new process.
//
// A damaged history is set aside, as runs.db.corrupt-N, and begun anew: it helps
// to understand what happened, and is not worth a test runner that does not
// start. When it cannot be written the runs go on, and are kept in memory as far
// as there is room. Config.Warn is told of both.
//
// Kept are Config.Keep finished runs, each with at most Config.OutputLimit bytes
// of output, for Config.KeepFor: that bounds the file, which is reused, and
// written anew by Open when most of it is free. Without a directory at most
// 64 MiB of output are kept, those of the newest runs.
package run
