"""Networks over several processes, each with some of the layers; sequences pass through them in chunks of time.

purpose                                              class or function        file
training and inference over the processes            TimePipeline             pipeline.py
a process's layers on one chunk of time              Chunk                    pipeline.py
the loss of a whole sequence, over chunks            WholeLoss                pipeline.py
"""

ERROR_CODE = "NW8201"
