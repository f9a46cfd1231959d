package wire

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/crypto/ssh"
)

// maxGrant bounds the answer of git-lfs-authenticate, in bytes.
const maxGrant = 64 << 10

// LFSGrant runs git-lfs-authenticate for a download on the server of an [SSH]
// transport, over a connection of its own, and returns what it answers. The error wraps
// [ErrUnsupported] when the program refuses or is not there: the server does not
// tell these two apart reliably.
func LFSGrant(ctx context.Context, t Transport) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap(ctx, LFS, t.String(), err)
	}
	answer, err := grant(ctx, t)
	if err == nil {
		err = ctx.Err() // the answer may end there
	}
	if err != nil {
		return nil, wrap(ctx, LFS, t.String(), err)
	}
	return answer, nil
}

func grant(ctx context.Context, t Transport) ([]byte, error) {
	s, ok := t.(*sshTransport)
	if !ok {
		return nil, fmt.Errorf("%w: the repository is not reached over ssh", ErrUnsupported)
	}
	path, err := quotedPath(s.url)
	if err != nil {
		return nil, err
	}
	c, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.close)()
	session, err := c.(*sshConn).client.NewSession()
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	defer session.Close()
	return output(session, "git-lfs-authenticate "+path+" download")
}

// output runs a command and returns what it answers.
func output(session *ssh.Session, command string) ([]byte, error) {
	var said capped
	session.Stderr = &said
	out, err := session.StdoutPipe()
	if err == nil {
		err = session.Start(command)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the server does not run git-lfs-authenticate: %w", ErrUnsupported, err)
	}
	answer, err := io.ReadAll(io.LimitReader(out, maxGrant+1))
	switch {
	case err != nil:
		return nil, err
	case len(answer) > maxGrant:
		return nil, fmt.Errorf("%w: git-lfs-authenticate answers with more than %d bytes", ErrLimit, maxGrant)
	}
	err = session.Wait()
	_, failed := errors.AsType[*ssh.ExitError](err)
	_, silent := errors.AsType[*ssh.ExitMissingError](err)
	switch {
	case failed || silent && len(answer) == 0:
		return nil, fmt.Errorf("%w: git-lfs-authenticate: %s", ErrUnsupported, said.text())
	case silent:
		return answer, nil
	}
	return answer, err
}
