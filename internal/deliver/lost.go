package deliver

import "fmt"

// A LostError says how many events did not reach a receiver.
type LostError struct {
	Receiver string
	Events   int   // at least 1
	Err      error // why the last of them did not
}

func (e *LostError) Error() string {
	what := fmt.Sprintf("%d events are", e.Events)
	if e.Events == 1 {
		what = "1 event is"
	}
	return fmt.Sprintf("tell %s: %s lost, the last because: %v", e.Receiver, what, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }
