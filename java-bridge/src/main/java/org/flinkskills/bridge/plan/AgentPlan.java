package org.flinkskills.bridge.plan;

import java.io.Serializable;

/**
 * Plan that the workers open, and its secrets, which only the workers may receive.
 *
 * @param json a JSON object that only the worker parses
 * @param secrets a JSON object that must not appear in logs or views
 * @param events whether the workers emit the events of turns
 */
public record AgentPlan(String json, String secrets, boolean events) implements Serializable {

  public AgentPlan(String json, String secrets) {
    this(json, secrets, false);
  }

  /** Return the same plan with events. */
  public AgentPlan withEvents() {
    return new AgentPlan(json, secrets, true);
  }

  /** Return another plan with the same secrets. */
  public AgentPlan withJson(String changed) {
    return new AgentPlan(changed, secrets, events);
  }

  /** Omit the secrets, because this string may appear in a log or an error message. */
  @Override
  public String toString() {
    return "AgentPlan[" + json + "]";
  }
}
