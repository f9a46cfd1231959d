package job

import "sync"

// A Reaper takes in the processes of jobs that lost their parent, so that none
// of them gets lost and none stays in the table of processes when it has ended. A
// program that is the first of its container needs one; any other may have one.
// The zero value is ready; nil is none.
//
// While Run is running a child of this process in another session, which is not
// the program of a job with this reaper, is taken for an orphan. Children in the
// session of this process are left to whoever started them.
type Reaper struct {
	mu      sync.Mutex
	adopts  bool
	leaders map[int]*process // of jobs that are under way, and not waited for
}
