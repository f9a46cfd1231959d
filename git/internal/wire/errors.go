package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode"
)

// A Phase names the part of a conversation in which an error happened.
type Phase string

// The phases of a conversation.
const (
	Dial          Phase = "dial"          // name look-up, TCP connection, proxy
	Handshake     Phase = "handshake"     // TLS or SSH, authentication over SSH
	Advertisement Phase = "advertisement" // the server's greeting
	LsRefs        Phase = "ls-refs"       // the list of refs
	Fetch         Phase = "fetch"         // from the request to the start of the pack
	Pack          Phase = "pack"          // the pack
	LFS           Phase = "lfs"           // git-lfs-authenticate
)

// An Error tells in which phase a conversation with a remote failed.
type Error struct {
	Phase Phase
	URL   string // without user information, query and fragment
	Err   error
}

func (e *Error) Error() string {
	return "git " + string(e.Phase) + " " + e.URL + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// The kinds of failure that callers tell apart with errors.Is.
var (
	// ErrAuth: the server refused the credentials, or wants some. It is fs.ErrPermission.
	ErrAuth error = &kind{"authentication failed", fs.ErrPermission}
	// ErrNotFound: there is no such repository. It is fs.ErrNotExist.
	ErrNotFound error = &kind{"repository not found", fs.ErrNotExist}
	// ErrEmpty: the repository has no refs.
	ErrEmpty error = &kind{"repository is empty: it has no refs", nil}
	// ErrProtocol: the answer does not follow the protocol.
	ErrProtocol error = &kind{"protocol error", nil}
	// ErrRemote: the server reported an error.
	ErrRemote error = &kind{"remote error", nil}
	// ErrUnreachable: the server refuses a wanted object, because it has none of
	// that name or because no ref leads to it. It wraps ErrRemote.
	ErrUnreachable error = &kind{"object is missing or not offered", nil}
	// ErrBusy: the server cannot answer now (HTTP status 429 or 5xx). It is ErrRemote.
	ErrBusy error = &kind{"remote error", ErrRemote}
	// ErrUnsupported: the server lacks a capability that the request needs.
	ErrUnsupported error = &kind{"not supported by the server", nil}
	// ErrLimit: the answer is larger than allowed.
	ErrLimit error = &kind{"limit exceeded", nil}
	// ErrRedirect: the server redirects to an address that must not be followed.
	ErrRedirect error = &kind{"redirect refused", nil}
)

type kind struct {
	text string
	std  error
}

func (k *kind) Error() string        { return k.text }
func (k *kind) Is(target error) bool { return k.std != nil && target == k.std }

// protocolf reports an answer that does not follow the protocol.
func protocolf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// wrap makes err an *Error. If ctx has ended, its cause replaces err; an answer that
// ends early is a protocol error.
func wrap(ctx context.Context, phase Phase, u string, err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{Phase: phase, Err: err}
	}
	out := &Error{Phase: e.Phase, URL: u, Err: e.Err}
	switch {
	case ctx.Err() != nil:
		out.Err = context.Cause(ctx)
	case errors.Is(e.Err, io.ErrUnexpectedEOF) || e.Err == io.EOF:
		out.Err = protocolf("the answer ends early")
	}
	return out
}

// inPhase marks err with a phase of its own, unless it has one; wrap adds the URL.
func inPhase(phase Phase, err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return &Error{Phase: phase, Err: err}
}

const maxMessage = 1 << 10 // bytes of a server's message that are repeated

// clean makes one line of a server's text: at most maxMessage bytes, valid
// UTF-8, no control characters.
func clean(text string) string {
	var b strings.Builder
	space := false
	for _, r := range text {
		if b.Len() >= maxMessage {
			line := b.String() // cut between words: a part of a secret would not be recognized and masked
			return line[:max(strings.LastIndexByte(line, ' '), 0)] + "…"
		}
		if unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar {
			space = b.Len() > 0
			continue
		}
		if !unicode.IsPrint(r) {
			continue
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
	}
	return b.String()
}

// phrases maps what servers write to the kind of failure; the first match wins.
var phrases = []struct {
	kind  error
	texts []string
}{
	{ErrUnreachable, []string{"not our ref", "unadvertised object", " not valid"}},
	{ErrAuth, []string{"permission denied", "access denied", "authentication", "unauthorized", "not authorized", "could not read username"}},
	{ErrNotFound, []string{"not found", "does not exist", "does not appear to be a git repository", "could not be found", "no such"}},
}

// remoteError turns the message of a server into an error.
func remoteError(message string) error {
	text := clean(message)
	lower := strings.ToLower(text)
	for _, p := range phrases {
		for _, t := range p.texts {
			if strings.Contains(lower, t) {
				return fmt.Errorf("%w: %w: %s", p.kind, ErrRemote, text)
			}
		}
	}
	return fmt.Errorf("%w: %s", ErrRemote, text)
}
