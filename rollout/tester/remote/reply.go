package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// decode reads the JSON object of an answer. What is not asked for may have any form.
func decode(a answer, into any) error {
	text := bytes.TrimSpace(a.body)
	if a.html || len(text) == 0 || text[0] != '{' {
		return errors.New("the answer is no JSON object: is that the base URL of the server, and who may use it?")
	}
	if err := json.Unmarshal(text, into); err != nil {
		return errors.New("the answer is no JSON of the form that was expected")
	}
	return nil
}

// loadID reads the answer to a request that starts a test of nGrinder.
func loadID(a answer, secrets []string) (int64, error) {
	var reply struct {
		Success *bool
		Cause   json.RawMessage
		Message json.RawMessage
		ID      json.RawMessage
	}
	if err := decode(a, &reply); err != nil {
		return 0, err
	}
	if err := success(reply.Success, reply.Cause, reply.Message, secrets); err != nil {
		return 0, err
	}
	id, err := strconv.ParseInt(string(reply.ID), 10, 64)
	if err != nil || id <= 0 {
		return 0, errors.New("the answer has no number of a test: one may have been started all the same")
	}
	return id, nil
}

// success returns an error when an answer of nGrinder says that it is one.
func success(ok *bool, cause, message json.RawMessage, secrets []string) error {
	if ok == nil || *ok {
		return nil
	}
	for _, raw := range []json.RawMessage{cause, message} {
		var words string
		if json.Unmarshal(raw, &words) == nil && words != "" {
			return fmt.Errorf("the server says: %s", bounded(words, secrets))
		}
	}
	return errors.New("the server says that it did not succeed")
}

// loadState reads the state of a test: status is a list whose first item has
// status_id (before 3.5), an object that has a name, or text.
func loadState(a answer, secrets []string) (state, message string, err error) {
	var reply struct {
		Success *bool
		Cause   json.RawMessage
		Message json.RawMessage
		Status  json.RawMessage
	}
	if err := decode(a, &reply); err != nil {
		return "", "", err
	}
	if err := success(reply.Success, reply.Cause, reply.Message, secrets); err != nil {
		return "", "", err
	}
	var text string
	var object struct{ Name string }
	var list []json.RawMessage
	switch {
	case json.Unmarshal(reply.Status, &text) == nil:
	case json.Unmarshal(reply.Status, &object) == nil:
		text = object.Name
	case json.Unmarshal(reply.Status, &list) == nil && len(list) > 0:
		var item struct {
			State string `json:"status_id"`
		}
		if json.Unmarshal(list[0], &item) == nil {
			text = item.State
		}
	}
	if text = bounded(text, secrets); text == "" {
		return "", "", errors.New("the answer has no status of the test")
	}
	if json.Unmarshal(reply.Message, &message) == nil {
		message = bounded(message, secrets)
	}
	return text, message, nil
}

// instance is what ids of processes look like, of at most maxInstance bytes:
// they become a part of a path.
var instance = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

const maxInstance = 128

// processID reads the answer to a request that starts a process of Concord.
func processID(a answer, secrets []string) (string, error) {
	var reply struct {
		ID string `json:"instanceId"`
		OK *bool
	}
	if err := decode(a, &reply); err != nil {
		return "", err
	}
	if reply.OK != nil && !*reply.OK {
		return "", fmt.Errorf("the server says that it did not succeed: %s", explain(a, secrets))
	}
	if len(reply.ID) > maxInstance || !instance.MatchString(reply.ID) {
		return "", errors.New("the answer has no instanceId of a process: one may have been started all the same")
	}
	return reply.ID, nil
}

// processState reads the state of a process.
func processState(a answer, secrets []string) (state, message string, err error) {
	var reply struct{ Status string }
	if err := decode(a, &reply); err != nil {
		return "", "", err
	}
	if state = bounded(reply.Status, secrets); state == "" {
		return "", "", errors.New("the answer has no status of the process")
	}
	return state, "", nil
}
