package api

import (
	"context"

	"github.com/headgate-io/headgate/internal/call"
)

// server returns the server that the client calls.
func (c *Client) server() call.Server {
	return call.Server{
		Name: "test runner", URL: c.URL, Token: c.Token, HTTP: c.HTTP,
		Problem: func(status int, reason string) error { return &Problem{Status: status, Reason: reason} },
	}
}

// call makes a request and decodes its answer. Operation begins the error.
func (c *Client) call(ctx context.Context, operation string, r call.Request, answer any) error {
	_, err := c.server().JSON(ctx, operation, r, answer)
	return err
}

// Error returns status and reason.
func (p *Problem) Error() string { return call.Status(p.Status, p.Reason) }
