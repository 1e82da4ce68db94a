package org.flinkskills.bridge.frames;

import java.io.IOException;

/** A frame that cannot be read, or must not be sent. */
public final class FrameException extends IOException {
  private static final long serialVersionUID = 1L;

  public FrameException(String message) {
    super(message);
  }
}
