package main

import (
	"context"
	"fmt"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/aws"
	"github.com/headgate-io/headgate/source/login/azure"
	"github.com/headgate-io/headgate/source/login/gcp"
	"github.com/headgate-io/headgate/source/login/github"
)

// login returns the table of what this command can log in with, as one function.
func (p *program) login() source.LoginFunc {
	providers := map[string]source.LoginFunc{
		"aws":    aws.New(nil, p.lookup).Login,
		"azure":  azure.New(nil, p.lookup).Login,
		"gcp":    gcp.New(nil, p.lookup).Login,
		"github": github.New(nil).Login,
	}
	return func(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
		login, ok := providers[r.Provider]
		if !ok {
			return source.Credential{}, fmt.Errorf("%w: %w: this version of headgate cannot log in with it", source.ErrInvalid, source.ErrProvider)
		}
		return login(ctx, r)
	}
}
