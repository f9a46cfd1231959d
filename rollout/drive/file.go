package drive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout"
)

// ErrInUse is wrapped if another process, or another File, owns the file.
var ErrInUse = errors.New("in use")

// A File stores the status of one canary. It has one owner at a time across all
// processes. Each save replaces it atomically: a reader finds the status before or
// after a save, even after a crash. A File is not safe for concurrent use.
type File struct {
	Path   string
	lock   *os.File
	canary rollout.Metadata
}

// A record is the content of a file.
type record struct {
	rollout.Metadata
	Status rollout.Status `json:"status"`
}

// Open locks the status file path, which need not exist, for a canary. It creates
// the directory of the file. The error wraps [ErrInUse] if the file has an owner.
// The caller must call Close.
func Open(path string, canary rollout.Metadata) (*File, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600) // a separate file: replacing a file would lose its lock
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	locked, err := durable.TryLock(lock)
	if err == nil && !locked {
		err = fmt.Errorf("%w by another run", ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("status %s: %w", path, errors.Join(err, lock.Close()))
	}
	canary.Namespace = cmp.Or(canary.Namespace, rollout.DefaultNamespace)
	return &File{path, lock, canary}, nil
}

// Load returns the saved status, or the zero Status if none was saved.
func (f *File) Load() (rollout.Status, error) {
	canary, s, err := Read(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return rollout.Status{}, nil
	}
	if err == nil && canary != f.canary {
		return rollout.Status{}, fmt.Errorf("status %s belongs to canary %s/%s, not to %s/%s", f.Path, canary.Namespace, canary.Name, f.canary.Namespace, f.canary.Name)
	}
	return s, err
}

// Read returns the status in the file path and the canary it belongs to, whether or
// not the file has an owner. The error wraps [fs.ErrNotExist] if there is no file.
func Read(path string) (canary rollout.Metadata, s rollout.Status, err error) {
	var r record
	text, err := os.ReadFile(path)
	if err != nil {
		return canary, s, fmt.Errorf("status: %w", err)
	}
	if err = json.Unmarshal(text, &r); err == nil {
		err = r.Status.Check()
	}
	if err != nil {
		return canary, s, fmt.Errorf("status %s is damaged, delete or mend it: %w", path, err)
	}
	return r.Metadata, r.Status, nil
}

func replace(path string, content any) error {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	return durable.Replace(path, append(text, '\n'))
}

// Save replaces the status.
func (f *File) Save(s rollout.Status) error {
	if err := replace(f.Path, record{f.canary, s}); err != nil {
		return fmt.Errorf("status %s: %w", f.Path, err)
	}
	return nil
}

// Close releases the lock of the file.
func (f *File) Close() error { return f.lock.Close() }

// Ask stores a request for the present or next owner of the status file path, in a
// file beside it that outlives both processes. It replaces a pending request, but
// it returns an error rather than replace an abort by a promotion.
func Ask(ctx context.Context, path string, r rollout.Request) error {
	return withRequest(ctx, path, func(name string) error {
		if was, err := Asked(path); err == nil && was != nil && was.Action == rollout.Abort && was.Revision == r.Revision && r.Action != rollout.Abort {
			return fmt.Errorf("%s: an abort that %s asked for waits already", r.Action, was.By)
		}
		return replace(name, r)
	})
}

// Asked returns the request beside the status file path, nil if there is none.
func Asked(path string) (*rollout.Request, error) {
	text, err := os.ReadFile(path + ".request")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := new(rollout.Request)
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err != nil {
		return nil, fmt.Errorf("request: %s.request: %w", path, err)
	}
	return r, nil
}

// removeRequest removes the request with an ID, or a request that cannot be read. It keeps
// a request that has replaced the one with the ID.
func (f *File) removeRequest(ctx context.Context, id string) error {
	return withRequest(ctx, f.Path, func(name string) error {
		if r, err := Asked(f.Path); err == nil && (r == nil || r.ID != id) {
			return nil
		}
		return os.Remove(name)
	})
}

// withRequest calls do with the path of the request beside the status file path. It
// holds a separate lock during the call, since the owner of the status holds the
// lock of the status. The lock ends with the process.
func withRequest(ctx context.Context, path string, do func(name string) error) error {
	name := path + ".request"
	lock, err := os.OpenFile(name+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	defer lock.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	locked := false
	for !locked && err == nil {
		if locked, err = durable.TryLock(lock); !locked && err == nil {
			err = retry.Sleep(ctx, 10*time.Millisecond)
		}
	}
	if err == nil {
		err = do(name)
	}
	if err != nil {
		return fmt.Errorf("request %s: %w", name, err)
	}
	return nil
}
