package controller

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/headgate-io/headgate/source"
)

// account implements [source.AccountFunc].
func (c *controller) account(ctx context.Context, namespace, name string) (*source.Account, error) {
	given := name != ""
	switch {
	case !c.identities && given:
		return nil, &source.StepError{Step: source.StepResolve, Reason: "FeatureGateDisabled", Err: fmt.Errorf(
			"%w: spec.serviceAccountName: the controller does not use identities of service accounts: remove the field, or start the controller with --feature-gates=ObjectLevelWorkloadIdentity=true", source.ErrInvalid)}
	case !c.identities, !given && c.defaultAccount == "":
		return nil, nil
	case !given:
		name = c.defaultAccount
	}
	a := new(corev1.ServiceAccount)
	if err := c.get(ctx, "service account", namespace, name, a); err != nil {
		if !given && errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: the controller uses it for objects without spec.serviceAccountName: create it, or set the field", err)
		}
		return nil, err
	}
	token := func(ctx context.Context, audience string) (string, error) {
		ctx, cancel := requestContext(ctx)
		defer cancel()
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
		if err := c.mgr.GetClient().SubResource("token").Create(ctx, a.DeepCopy(), request); err != nil {
			return "", fmt.Errorf("token of service account %s/%s: %w", namespace, name, withGrantAdvice(err))
		}
		return request.Status.Token, nil
	}
	return &source.Account{Namespace: namespace, Name: name, UID: string(a.UID), Annotations: a.Annotations, Token: token}, nil
}

// accountOf returns the name of the service account whose identity an object with this spec uses
// with its cloud provider, or "" for the default account. If provided is false, it uses none.
func accountOf(spec any) (name string, provided bool) {
	fields, _ := spec.(map[string]any)
	provider, _ := fields["provider"].(string)
	name, _ = fields["serviceAccountName"].(string)
	return name, slices.Contains([]string{"aws", "azure", "gcp"}, provider)
}
