package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout"
)

// Ask leaves a request for the owner of the status file path, the present or
// the next one, in a file beside it that survives both processes. It replaces a
// request that was not taken up yet, but an abort is not replaced by a promotion.
func Ask(ctx context.Context, path string, r rollout.Request) error {
	return withRequest(ctx, path, func(name string) error {
		if was, err := readRequest(name); err == nil && was != nil && was.Action == rollout.Abort && was.Revision == r.Revision && r.Action != rollout.Abort {
			return fmt.Errorf("%s: an abort that %s asked for waits already", r.Action, was.By)
		}
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		return durable.Replace(name, append(text, '\n'))
	})
}

// Asked returns the request beside the status file path, nil when there is none.
func Asked(path string) (*rollout.Request, error) {
	r, err := readRequest(requestName(path))
	if err != nil {
		err = fmt.Errorf("request: %w", err)
	}
	return r, err
}

// Forget removes the request with an ID, and one that cannot be read; another
// one that replaced it stays.
func (f *File) Forget(ctx context.Context, id string) error {
	return withRequest(ctx, f.path, func(name string) error {
		if r, err := readRequest(name); err == nil && (r == nil || r.ID != id) {
			return nil
		}
		return os.Remove(name)
	})
}

func requestName(path string) string { return path + ".request" }

func readRequest(name string) (*rollout.Request, error) {
	text, err := readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := new(rollout.Request)
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// A request is changed under a lock of its own, as the owner of the status
// keeps that of the status. It is held for moments, and ends with its process.
const (
	lockTime = 10 * time.Second
	lockTurn = 10 * time.Millisecond
)

func withRequest(ctx context.Context, path string, do func(name string) error) (err error) {
	name := requestName(path)
	defer func() {
		if err != nil {
			err = fmt.Errorf("request %s: %w", name, err)
		}
	}()
	lock, err := os.OpenFile(name+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	for {
		mine, err := durable.TryLock(lock)
		if err != nil {
			return err
		}
		if mine {
			return do(name)
		}
		if err := retry.Sleep(ctx, lockTurn); err != nil {
			return fmt.Errorf("locked by another process: %w", err)
		}
	}
}
